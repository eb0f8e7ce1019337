"""TwinVoice's training questions: the three readers, and the drafting and filtering of a question.

The public dumps are out of reach here, so these records are invented, in the forms that the dumps are documented in. A
rule stands in for the models: the drafter swaps words, and the filter knows a person by a habit.
"""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from data import twinvoice_train
from data.builder_cli import Built
from data.model_stages import Item
from data.twinvoice_people import read
from data.twinvoice_train import Drafts, blank_out, draft_fault, tells
from soul.rows import data_card as card
from soul.rows.review import Review
from soul.rows.task_files import read_rows
from soul.testing import FakeOpenAI, Json
from tests.data.source_files import build_training, write_lines

FILLER = "I was at the market in the morning and there were so many people with number {} on the way home"
NUMBERS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()


def post(author: str, number: int, text: str, reply: str = "") -> dict[str, str]:
    about = {"author": author, "uri": f"at://{author}/{number}", "created_at": f"2024-01-{number + 1:02}"}
    return {**about, "text": text, "reply_to": reply}


def person(author: str, habit: str, count: int = 13) -> list[dict[str, str]]:
    texts = [f"{FILLER.format(NUMBERS[number])} {habit}" for number in range(count)]
    reply = f"I think that the rain will be over before we are there, {habit}"
    asked = post(f"{author}-friend", 20, "what do you think about the weather on the way to the lake today")
    return [*(post(author, n, text) for n, text in enumerate(texts)), asked, post(author, 21, reply, asked["uri"])]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sources" / "twinvoice_sources").mkdir(parents=True)
    return tmp_path / "sources" / "twinvoice_sources"


def script(request):
    """The stand-in for both models: see the head of this file."""
    data = request.data
    if "reply" in data:
        if "clumsy" in data["reply"]:
            return Json({"replies": [data["reply"]] * 3})
        return Json(
            {"replies": [" ".join(f"{sign}{word}" for word in data["reply"].split()) for sign in ("x", "y", "z")]}
        )
    letters = list(data["options"])
    real = next(letter for letter, text in data["options"].items() if text.startswith("I think"))
    wrong = next(letter for letter in letters if letter != real)
    known = "history" in data and not any("forgettable" in line for line in data["history"])
    obvious = "obvious" in data["options"][real]
    answer = {"reasoning": "The habit.", "answer": real if known or obvious else wrong, "equally_likely": []}
    if "history" in data and "twofold" in data["options"][real]:
        answer["equally_likely"] = [wrong]
    return Json(answer)


def run(fake: FakeOpenAI, folder: Path, *words: str) -> int:
    return build_training(fake, folder.parent, "twinvoice", *words)


def test_both_stages_keep_what_needs_the_history_and_count_the_rest(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "3000")
    habits = {"ann": "dear", "bea": "obvious", "cat": "forgettable", "dot": "twofold", "eva": "clumsy"}
    write_lines(folder / "bluesky.jsonl", *(one for name, habit in habits.items() for one in person(name, habit)))
    with FakeOpenAI(script) as fake:
        assert run(fake, folder, "--dry-run") == 0 and fake.requests == []
        plan = capsys.readouterr().out
        assert "drafts: 5 calls to" in plan and "answers_without_history: 5 calls" in plan
        assert run(fake, folder) == 0
        asked = len(fake.requests)
        assert asked == 4 + 2 + 4 + 4  # one draft is asked for twice and dropped
        assert run(fake, folder) == 0 and len(fake.requests) == asked
    out = folder.parents[1] / "out" / "sim_rl_data" / "twinvoice_rl_train.parquet"
    about = card.read(out)
    assert about is not None and about.stands_in.startswith("ONLY Bluesky")
    reasons = {"answered from the occasion alone", "not answered from the history", "another option fits as well"}
    found = {why.removeprefix("filter: "): count for why, count in about.left_out.items()}
    assert {why: found[why] for why in reasons} == dict.fromkeys(reasons, 1)
    assert found["drafts: two replies are the same"] == 1 and found["people: no reply after 12 earlier texts"] == 5
    (row,) = read_rows([str(out)])
    assert row.task.options(row.row)[row.task.gold(row.row)].endswith("there, dear")
    assert len(row.row.conversation_history) == 13 and row.row.group.startswith("user-") and "ann" not in row.row.group
    review = Review(out.parent)
    (told,) = review.about()
    assert told["left_out"] == {why: 1 for why in about.left_out if why.startswith(("filter", "drafts"))}
    blind = review.rows(out.name, "filter: answered from the occasion alone")["rows"][0]
    assert blind["source"]["history"] and blind["result"]["without history"]["reasoning"] == "The habit."
    for one in (blind, review.rows(out.name, "drafts: two replies are the same")["rows"][0]):
        review.mark(out.name, one["row"], "keep")
    with FakeOpenAI(script) as fake:
        assert run(fake, folder) == 0 and len(fake.requests) == 2  # the filter had not been asked about one of them
    after = card.read(out)
    assert after is not None and after.rows == 3 and sum(about.left_out.values()) - sum(after.left_out.values()) == 2
    assert {use.role for use in about.models} == {"drafter", "filter"}
    assert {use.model for use in about.models} == {"gpt-5.4-mini", "gpt-5.4"}  # the paper's, as none was named


def test_an_answer_is_only_reused_for_the_question_that_it_was_about(folder, capsys):
    """Another seed puts the options into another order, so the filter's old letters say nothing."""
    write_lines(folder / "bluesky.jsonl", *(one for n in range(12) for one in person(f"ann{n}", "dear")))
    out = folder.parents[1] / "out" / "sim_rl_data" / "twinvoice_rl_train.parquet"
    with FakeOpenAI(script) as fake:
        for seed in ("0", "1"):
            assert run(fake, folder, "--seed", seed) == 0
            about = card.read(out)
            assert about is not None and about.rows == 12 and not any("filter" in why for why in about.left_out)


def test_an_answer_in_the_history_is_removed_from_it(folder, tmp_path):
    posts = person("ann", "dear", 14)
    posts[3]["text"] = posts[-1]["text"]
    path = write_lines(folder / "bluesky.jsonl", *posts)
    with FakeOpenAI(script) as fake:
        models = [f"judge.base_url={fake.url}", "judge.api_key_env=none"]
        words = ["convert", str(path), "--out", str(tmp_path / "o.parquet"), "--stages", str(tmp_path / "s")]
        built: Built = twinvoice_train.BUILDER.build([*words, "--models", *models])
    assert built.notes == ("removed: 1 (lines of the history with the right reply)",)
    (row,) = read_rows([str(tmp_path / "o.parquet")])
    assert len(row.row.conversation_history) == 13


@pytest.mark.parametrize(
    ("replies", "wrong"),
    [
        (["the sun is out all day long here", "no idea what you are on about", "rain again so bring a coat then"], ""),
        (["the sun is out all day long here"] * 3, "two replies are the same"),
        (
            ["short", "no idea what you are on about", "rain again so bring a coat then"],
            "too short or too long: 1 words",
        ),
        (
            ["I like the lake in autumn too", "no idea what you are on about", "rain again so bring a coat then"],
            "shares 5 words in a row",
        ),
    ],
)
def test_what_is_wrong_with_drafts(replies, wrong):
    found = draft_fault(Item("k", {"reply": "I like the lake in summer most"}), Drafts(replies=replies))
    assert wrong in found and bool(found) == bool(wrong)


GOLD = "I never liked the sea, and I never shall."


@pytest.mark.parametrize(
    "context, blanked, count",
    [
        (f"They stood there. “{GOLD}” Bo laughed.", "They stood there. “[...]” Bo laughed.", 1),
        (f'She said, "{GOLD}" and went home to the mill.', 'She said, "[...]" and went home to the mill.', 1),
        (
            "I never liked the sea, she thought; and I never shall. They went home by the mill.",
            "I never liked the sea, she thought; and I never shall. They went home by the mill.",
            0,
        ),
        ("She never liked the sea and I never shall. Home then, they said.", "[...] Home then, they said.", 1),
    ],
)
def test_narrations_that_hold_the_reply(context, blanked, count):
    assert blank_out(context, GOLD) == (blanked, count)


@pytest.mark.parametrize(
    "text, gold, told",
    [
        ("Never.", "never", True),
        ("Never say never.", "never", False),  # one word is no leak inside of a sentence
        ("He said: not for me!", "Not for me", True),
        ("not for", "Not for me", False),
        ("a b c d e f g", "x a b c d e f y", True),
        ("a b c d e", "x a b c d e f y", True),  # a part of it, whole
        ("z a b c d e z", "x a b c d e f y", False),
        ("我不想再去海边了今天", "真的我不想再去海边了", True),
        ("我想", "我想再去海边", False),
        ("", "", False),
        ("...", "!", False),
    ],
)
def test_what_tells_the_reply(text, gold, told):
    assert tells(text, gold) is told


def test_telegram_messages_are_read_by_user_and_chat(tmp_path):
    def message(number: int, user: object, text: str, **fields: object) -> dict:
        return {"id": number, "message": text, "from_id": user, "to_id": {"channel_id": 9}, "date": number, **fields}

    path = tmp_path / "messages.ndjson.gz"
    lines = [
        message(1, 5, "does anybody here know where the key to the shed is"),
        message(2, {"_": "PeerUser", "user_id": 6}, "it is on the hook @mia by the door", reply_to_msg_id=1),
        message(3, 5, "write to me at mia@example.org and I will tell you", reply_to={"reply_to_msg_id": 2}),
        message(4, 5, "see https://example.org for all of the details on this"),
        message(5, 5, "thank you that is where it was all of the time", reply_to={"reply_to_msg_id": 2}),
        message(6, None, "a message of the channel itself that is by nobody"),
    ]
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    left_out: Counter[str] = Counter()
    people = sorted(read(path, left_out), key=lambda one: len(one.said))
    assert [[said.text for said in one.said] for one in people] == [
        ["it is on the hook @user by the door"],
        [lines[0]["message"], lines[4]["message"]],
    ]
    assert people[1].said[1].occasion == "it is on the hook @user by the door"
    assert left_out == {
        "texts: an address or a telephone number": 1,
        "texts: a link": 1,
        "texts: of nobody, such as a channel's own messages": 1,
    }


def test_bots_and_other_languages_are_left_out(tmp_path):
    german = [f"Heute war ich auf dem Markt und habe {n} Birnen gekauft" for n in NUMBERS]
    posts = [post("hans", n, text) for n, text in enumerate(german)]
    posts += [post("weather-bot", n, FILLER.format(text)) for n, text in enumerate(NUMBERS)]
    posts += [post("echo", n, "it is the same thing with me all of the time") for n in range(9)]
    left_out: Counter[str] = Counter()
    assert list(read(write_lines(tmp_path / "bluesky.jsonl", *posts), left_out)) == []
    assert left_out == {"people: not English": 1, "people: a bot, or somebody who repeats texts": 2}


NOVEL = """The Project Gutenberg eBook of Ponds
Title: Ponds and Parsons

*** START OF THE PROJECT GUTENBERG EBOOK PONDS ***

The parson had been at the pond since the morning, and nobody dared to ask him why.

"Is there anything in it that you have lost?" said Miss Gray.

“I have lost nothing but my time,” replied the parson, “and that was of no use to me.”

Miss Gray answered, "You might have spent it with us in the garden, then."

"He is mad," she said.

*** END OF THE PROJECT GUTENBERG EBOOK PONDS ***
"Not in the book at all, this one," said Miss Gray.
"""


def test_a_novels_dialogue_is_read_by_character(tmp_path):
    (tmp_path / "ponds.txt").write_text(NOVEL)
    (person,) = read(tmp_path / "ponds.txt", Counter())
    assert person.group == "Ponds and Parsons:Miss Gray" and person.dimension == "3"
    assert [said.text for said in person.said] == [
        "Is there anything in it that you have lost?",
        "You might have spent it with us in the garden, then.",
    ]
    assert "replied the parson" in person.said[1].occasion and person.said[0].occasion.startswith("The parson had been")
