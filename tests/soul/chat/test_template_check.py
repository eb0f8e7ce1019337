"""Chat templates of many families: the context of a dialogue is the same in training as served, token by token."""

import copy
import re

import pytest

from soul.chat import template_check
from soul.chat.rendering import ChatRenderer
from soul.chat.template_check import BadTemplate, fit_template
from tests.soul.chat.families import FAMILIES, OWN_TURNS, stop_ids, tokenizer_of

ACCEPTED = [name for name, family in FAMILIES.items() if family.refused is None]
GROWING = [n for n in ACCEPTED if OWN_TURNS not in FAMILIES[n].notes and not FAMILIES[n].dialogue_problem]
TURNS = ["Only two!", " We close\nat six.", "I see; goodbye."]  # answers that no probe of the check has


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_is_completed_or_refused(name):
    family = FAMILIES[name]
    if family.refused:
        with pytest.raises(BadTemplate, match=re.escape(family.refused)):
            fit_template(tokenizer_of(name), stop_ids(name), family.kwargs)
        return
    found = fit_template(tokenizer_of(name), stop_ids(name), family.kwargs)
    assert len(found.notes) == len(family.notes), found.notes
    assert all(word in note for word, note in zip(family.notes, found.notes, strict=True)), found.notes
    assert bool(found.dialogue_problem) == bool(family.dialogue_problem)
    assert (family.dialogue_problem or "") in (found.dialogue_problem or "")
    needs = any(each in " ".join(family.notes) for each in ("system", "row", "first", "empty"))
    baked = any(word in family.template for word in family.kwargs)
    assert (found.template is not None) == (needs or baked)


@pytest.mark.parametrize("name", GROWING)
def test_a_dialogue_that_grows_turn_by_turn_is_the_served_one(name):
    """Two questions in a row, a policy that opens, and turns that were cut off are among the cases."""
    family, tokenizer = FAMILIES[name], tokenizer_of(name)
    found = fit_template(tokenizer, stop_ids(name), family.kwargs)
    served = ChatRenderer(tokenizer, found.stop_ids, found.template, family.kwargs)
    close = next(iter(found.added_stop_ids or {tokenizer.convert_tokens_to_ids(family.stops[-1])}))
    for messages in (
        [{"role": "system", "content": "Be Ann."}, {"role": "user", "content": "Hi."}],
        [{"role": "user", "content": "Hi."}, {"role": "user", "content": "Still there?"}],
        [{"role": "system", "content": "Be Ann and begin."}],
    ):
        for ending in ([close], []):
            conversation = list(messages)
            text = served.text(conversation)
            ids = served.ids(text)
            for said in map(str.strip, TURNS):
                ids = [*ids, *served.ids(said), *ending]
                conversation += [{"role": "assistant", "content": said}, {"role": "user", "content": "And then?"}]
                growth = served.growth(text, ids, said, conversation)
                assert growth is not None
                text, ids = growth.text, [*ids, *growth.ids]
                assert ids == served.ids(served.text(conversation)), (tokenizer.decode(ids), text)


def test_a_template_with_a_long_loop_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_check, "LIMIT_S", 0.5)
    tokenizer = copy.copy(tokenizer_of("Llama 3"))
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    tokenizer.chat_template = loop + tokenizer.chat_template
    with pytest.raises(BadTemplate, match="has a long loop"):
        fit_template(tokenizer, stop_ids("Llama 3"), setting="model.chat_template")


def test_a_turn_that_the_server_would_show_differently_does_not_grow():
    renderer = ChatRenderer(tokenizer_of("Llama 3"), stop_ids("Llama 3"))
    messages = [{"role": "user", "content": "Hi."}]
    text = renderer.text(messages)
    said = " Hello "  # the template trims it
    ids = [*renderer.ids(text), *renderer.ids(said), *stop_ids("Llama 3")]
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "And?"}]
    assert renderer.growth(text, ids, said, messages) is None


def test_decoding_keeps_paired_tags_and_drops_control_tokens():
    name = "Qwen3"  # its <think> is special here
    tokenizer, renderer = tokenizer_of(name), ChatRenderer(tokenizer_of(name), stop_ids(name))
    ids = renderer.ids("<think>so</think>yes<|im_end|>")
    assert renderer.decode(ids) == ("<think>so</think>yes", True)
    assert renderer.decode(ids[:-1]) == ("<think>so</think>yes", True)
    control = tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert renderer.decode([*ids[:-1], control, *ids[-1:]]) == ("<think>so</think>yes", False)


def test_a_served_checkpoint_keeps_the_arguments_of_its_training():
    name = "Qwen3 without thinking"
    found = fit_template(tokenizer_of(name), stop_ids(name), {"enable_thinking": False})
    messages = [{"role": "user", "content": "Hi."}]
    bare = ChatRenderer(tokenizer_of(name), stop_ids(name), found.template)
    asked = ChatRenderer(tokenizer_of(name), stop_ids(name), None, {"enable_thinking": False})
    assert bare.text(messages) == asked.text(messages)
    assert bare.text(messages) != ChatRenderer(tokenizer_of(name), stop_ids(name)).text(messages)
