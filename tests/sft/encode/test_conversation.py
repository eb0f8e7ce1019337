"""Records become conversations, whose trained side the rules name."""

import json
from typing import Any

import pytest

from sft.encode import conversation
from sft.encode.conversation import read_conversation
from sft.encode.messages import BadConversation
from sft.encode.train_roles import RoleRules, SourceRule

CHAT = [
    {"role": "system", "content": "You are Ann."},
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "hi"},
    {"role": "user", "content": "bye"},
]


def read(record: dict[str, Any], layout: Any = "messages", rules: RoleRules | None = None) -> Any:
    """Read one record."""
    return read_conversation(record, layout, rules or RoleRules(default="assistant"), "a.parquet", 7)


def test_the_assistant_is_trained_as_it_stands() -> None:
    found = read({"data_source": "mine", "messages": CHAT})
    assert (found.source, found.role, found.trained) == ("mine", "assistant", (2,))
    assert found.messages == CHAT


def test_the_human_side_is_swapped() -> None:
    found = read({"data_source": "wildchat", "messages": CHAT})
    assert [turn["role"] for turn in found.messages] == ["system", "assistant", "user", "assistant"]
    assert [found.messages[number]["content"] for number in found.trained] == ["hello", "bye"]
    assert CHAT[1]["role"] == "user"  # the record is as it was


def test_the_row_says_which_side_is_trained() -> None:
    rules = RoleRules(default="human")
    assert read({"data_source": "mine", "messages": CHAT, "train_role": "assistant"}, rules=rules).role == "assistant"
    assert read({"data_source": "mine", "messages": CHAT, "train_role": None}, rules=rules).role == "human"


def test_tasks_of_the_odyssim_corpus_get_an_empty_system_message() -> None:
    """So that no template adds a default. Rows that name their side themselves stay as they are."""
    chat = CHAT[1:]
    found = read({"data_source": "tom_hitom", "messages": chat})
    assert found.messages == [{"role": "system", "content": ""}, *chat] and found.trained == (2,)
    assert read({"data_source": "tom_hitom", "messages": CHAT}).messages == CHAT
    assert read({"data_source": "tom_hitom", "messages": chat, "train_role": "assistant"}).messages == chat
    assert read({"data_source": "sotopia", "messages": chat}).messages == chat


@pytest.mark.parametrize("messages", [CHAT, json.dumps(CHAT)], ids=["list", "text"])
def test_messages_may_lie_in_extra_info(messages: Any) -> None:
    found = read({"data_source": "x", "extra_info": {"messages": messages}}, "extra_info.messages")
    assert found.messages == CHAT


def test_prompt_and_response_train_the_response_alone() -> None:
    for prompt in ("[INST] how? [{", CHAT):
        found = read({"data_source": "coser", "prompt": prompt, "response": "so"}, "prompt_response")
        assert found.trained == (len(found.messages) - 1,) and found.role == "response"
        assert found.messages[-1] == {"role": "assistant", "content": "so"}
    assert found.messages[:-1] == CHAT


def test_parts_and_nulls_of_other_writers() -> None:
    turn = {
        "role": "user",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "tool_calls": None,
    }
    found = read({"messages": [turn, {"role": "assistant", "content": None, "tool_calls": [{"x": 1}]}]})
    assert found.messages[0] == {"role": "user", "content": "ab"}
    assert found.trained == (1,) and found.source == "unnamed"


def test_an_empty_turn_of_the_other_side_is_context() -> None:
    assert read({"messages": [{"role": "user", "content": ""}, CHAT[2]]}).trained == (1,)


@pytest.mark.parametrize("last", [0, 1, 2, 3, 4, 5])
def test_only_the_last_turns_stay_turns_and_nothing_is_lost(last: int) -> None:
    said = [("assistant", "Trial 1?"), ("user", "F"), ("assistant", "Trial 2?"), ("user", "J")]
    turns = [{"role": "system", "content": "Press a key."}, *({"role": r, "content": c} for r, c in said)]
    messages, trained = conversation._sides(turns, SourceRule("human", last_turns=last), "x")
    assert messages[0] == {"role": "system", "content": "Press a key."}
    kept = [(turn["role"], turn["content"]) for turn in messages[1:]]
    assert kept == {
        1: [
            ("user", "[Earlier conversation]\nassistant: Trial 1?\n\nuser: F\n\nassistant: Trial 2?"),
            ("assistant", "J"),
        ],
        2: [("user", "[Earlier conversation]\nassistant: Trial 1?\n\nuser: F\n\nTrial 2?"), ("assistant", "J")],
        3: [
            ("user", "[Earlier conversation]\nassistant: Trial 1?"),
            ("assistant", "F"),
            ("user", "Trial 2?"),
            ("assistant", "J"),
        ],
    }.get(last, [("user", "Trial 1?"), ("assistant", "F"), ("user", "Trial 2?"), ("assistant", "J")])
    assert [messages[number]["content"] for number in trained] == (["J"] if last in (1, 2) else ["F", "J"])


def test_long_known_corpora_keep_their_last_turns() -> None:
    messages = [{"role": role, "content": str(n)} for n in range(30) for role in ("assistant", "user")]
    record = {"data_source": "psych101_bandit", "messages": messages}
    like = read(record, rules=RoleRules())
    assert len(like.messages) == 20 and len(like.trained) == 10


TWO = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
    {"role": "assistant", "content": "d"},
]


@pytest.mark.parametrize("mark", [{"weight": 0}, {"weight": 0.0}, {"train": False}, {"weight": 1, "train": False}])
def test_a_turn_of_no_weight_is_context(mark: dict[str, Any]) -> None:
    marked = [TWO[0], TWO[1] | mark, TWO[2] | {"weight": None}, TWO[3] | {"train": True, "weight": None}]
    found = read({"messages": marked})
    assert found.trained == (3,) and found.messages == TWO  # the marks do not reach the template
    assert read({"messages": [TWO[0] | mark, *TWO[1:3]], "train_role": "human"}).trained == (2,)


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([TWO[0] | {"weight": 1}, TWO[1]], "turn 0: the turn is marked to be trained .* trains the assistant's turns"),
        ([TWO[0], TWO[1] | {"weight": 0.5}], "turn 1, field weight: 0.5 is neither 0 nor 1"),
        ([TWO[0], TWO[1] | {"train": "no"}], "turn 1, field train: 'no' is neither"),
    ],
)
def test_marks_that_cannot_be_honoured(messages: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(BadConversation, match=f"a.parquet, row 7.*{says}"):
        read({"messages": messages})


@pytest.mark.parametrize("written", [list, json.dumps], ids=["list", "text"])
def test_tools_reach_the_conversation(written: Any) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    assert read({"messages": TWO, "tools": written([tool])}).tools == [tool]
    assert read({"prompt": "x", "response": "y", "tools": written([tool])}, "prompt_response").tools == [tool]
    assert read({"messages": TWO, "tools": [tool | {"strict": None}]}).tools == [tool]  # parquet's null
    assert read({"messages": TWO, "tools": written([])}).tools is None
    with pytest.raises(BadConversation, match="row 7, field tools: expected a list of JSON schemas"):
        read({"messages": TWO, "tools": '{"name": "look"}'})
