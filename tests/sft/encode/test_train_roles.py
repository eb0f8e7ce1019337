"""Every source has a rule for its trained side, or is an error that says how to give it one."""

import pytest

from sft.encode.train_roles import KNOWN_SOURCES, RoleRules, UnknownSource

# The 71 names of the OdysSim release by the side that they train.
HUMAN = """
    coser wildchat wildchat_v1 lmsys oasst1 oasst2 prism alignx nectar hh_rlhf dialogue dailydialog cornell_movie
    empathetic humanual humanual_book humanual_chat humanual_email humanual_news humanual_opinion humanual_politics
    experiment psych101 socsci210 education_dialogue mathdial studychat
    convokit_IDEA-NTHU-unintended-offense-tweets convokit_casino-corpus convokit_chromium-corpus
    convokit_conversations-gone-awry-cmv-corpus convokit_conversations-gone-awry-cmv-corpus-large
    convokit_conversations-gone-awry-corpus convokit_emotional-support convokit_friends-corpus convokit_mediasum-corpus
    convokit_npr-2p-corpus convokit_parliament-corpus convokit_persuasionforgood-corpus
    convokit_reddit-coarse-discourse-corpus convokit_reddit-corpus-small convokit_small-pool convokit_supreme-corpus
    convokit_switchboard-corpus convokit_tennis-corpus convokit_wiki-articles-for-deletion-corpus convokit_wiki-corpus
    convokit_wikiconv-2018 convokit_winning-args-corpus
""".split()
ASSISTANT = """
    human_llm tom_from_coser tom_socialiqa tom_mindgames tom_moralstories tom_fantom tom_hitom tom_paratomi tom_mmtom
    tom_sotopia soc_sotopia_tom_silver soc_haico soc_persona_conflicts soc_cornell soc_sotopia_pi_bc rm_r1_sft
    tom_characterllm tom_grimulkan tom_tominli sotopia chat step35_flash_sft
""".split()


def test_the_known_sources_train_the_side_that_their_release_trains() -> None:
    assert len(KNOWN_SOURCES) == len(HUMAN) + len(ASSISTANT) == 71
    for role, names in (("human", HUMAN), ("assistant", ASSISTANT)):
        for name in names:
            assert RoleRules().rule(name, "a.parquet").role == role, name
    assert [name for name in KNOWN_SOURCES if RoleRules().rule(name, "").last_turns] == ["psych101"]
    assert {name for name, known in KNOWN_SOURCES.items() if known.empty_system} == set(ASSISTANT) - {
        *("sotopia", "chat", "step35_flash_sft")
    }


@pytest.mark.parametrize(
    ("source", "role", "origin"),
    [
        ("wildchat_1m_en", "human", "like wildchat"),
        ("my_mathdial", "human", "like mathdial"),
        ("coser-dialogue-2", "human", "like coser"),  # the table's order, not the name's
        ("empathetic_dialogues", "human", "like empathetic"),
        ("sharegpt_chat", "assistant", "like chat"),
        ("tom_hitom_v2", "assistant", "like tom_hitom"),
    ],
)
def test_a_name_that_contains_a_known_one_takes_its_rule(source: str, role: str, origin: str) -> None:
    rule = RoleRules().rule(source, "a.parquet")
    assert (rule.role, rule.origin) == (role, origin)


@pytest.mark.parametrize("source", ["prismatic_qa", "my_experiments", "chatty", "nectarine", "wildchat1m"])
def test_a_name_within_a_longer_word_is_no_known_one(source: str) -> None:
    with pytest.raises(UnknownSource, match="no rule says which side"):
        RoleRules().rule(source, "a.parquet")
    assert RoleRules(default="assistant").rule(source, "a.parquet").origin == "data.default_train_role"


def test_a_known_name_that_is_only_contained_does_not_overrule_the_default_in_silence() -> None:
    rules = RoleRules(default="assistant")
    with pytest.raises(UnknownSource, match=r"dialogue \(human\); data.default_train_role=assist"):
        rules.rule("customer_dialogue", "a.parquet")
    assert rules.rule("dialogue", "a.parquet").role == "human"  # the source itself
    assert RoleRules(default="human").rule("customer_dialogue", "a.parquet").origin == "like dialogue"
