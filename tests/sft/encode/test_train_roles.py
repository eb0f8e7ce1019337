"""Every source has a rule for its trained side, or is an error that says how to give it one."""

from collections import Counter

import pytest

from sft.encode.train_roles import KNOWN_SOURCES, RoleRules, UnknownSource

# Some of the release's names by the side that they train.
HUMAN = (
    "coser wildchat wildchat_v1 lmsys prism alignx humanual_politics psych101 socsci210 convokit_npr-2p-corpus".split()
)
ASSISTANT = "human_llm tom_from_coser tom_hitom tom_sotopia soc_haico rm_r1_sft sotopia chat step35_flash_sft".split()


def test_the_known_sources_train_the_side_that_their_release_trains() -> None:
    roles = Counter(RoleRules().rule(name, "a.parquet").role for name in KNOWN_SOURCES)
    assert roles == {"human": 49, "assistant": 22}
    for role, names in (("human", HUMAN), ("assistant", ASSISTANT)):
        for name in names:
            assert RoleRules().rule(name, "a.parquet").role == role, name
    assert [name for name in KNOWN_SOURCES if RoleRules().rule(name, "").last_turns] == ["psych101"]
    thinking = {name for name, known in KNOWN_SOURCES.items() if known.empty_system}
    assert len(thinking) == 19 and thinking.isdisjoint([*HUMAN, "sotopia", "chat", "step35_flash_sft"])


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
