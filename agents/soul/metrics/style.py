"""Which characters of a text are style: words that carry how something is said rather than what.

Style words are function words (articles, pronouns, auxiliaries, prepositions, conjunctions: the closed classes that
authorship studies count since Mosteller and Wallace, 1964), hedges and boosters (Hyland, "Metadiscourse", 2005) and
discourse markers (Schiffrin, "Discourse Markers", 1987; of reasoning models "wait", "let", "hmm"). Punctuation is style
too. Every other word, and every number, is content. The lists are English; words of other languages count as content.
"""

from __future__ import annotations

import re

FUNCTION_WORDS = frozenset(
    """
    a an the this that these those i me my mine myself you your yours yourself he him his himself she her hers herself
    it its itself we us our ours ourselves they them their theirs themselves who whom whose which what where when why
    how there here am is are was were be been being have has had having do does did doing will would shall should can
    could may might must not no nor and or but if than then because while although though unless until since as of at
    by for with about against between into through during before after above below to from up down in out on off over
    under again further once all any both each few more most other some such only own same so too very just
    i'm you're he's she's it's we're they're i've you've we've they've i'd you'd he'd she'd we'd they'd i'll you'll
    he'll she'll we'll they'll isn't aren't wasn't weren't don't doesn't didn't won't wouldn't can't couldn't shouldn't
    that's there's what's let's
    """.split()
)
HEDGES_AND_BOOSTERS = frozenset(
    """
    almost apparently apparent appear appears approximately basically certainly clearly definitely essentially fairly
    generally guess indeed kind largely likely mainly maybe mostly obviously often overall perhaps possible possibly
    presumably pretty probably quite rather really relatively roughly seem seems simply somewhat sort sure surely tend
    tends think totally truly typically usually
    """.split()
)
DISCOURSE_MARKERS = frozenset(
    """
    accordingly actually additionally ah also alright alternatively anyway besides consequently finally first firstly
    furthermore hence hmm however instead let likewise look meanwhile moreover nevertheless next nonetheless now oh ok
    okay otherwise please regardless second secondly similarly specifically still therefore third thus um uh wait well
    yes yet yeah
    """.split()
)
STYLE_WORDS = FUNCTION_WORDS | HEDGES_AND_BOOSTERS | DISCOURSE_MARKERS

# A word with inner apostrophes, or any other letter or digit; U+FFFD is what part of a character decodes to.
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*|[\w\ufffd]")


def content_mask(text: str) -> bytearray:
    """1 at every character of a word or number that is content, else 0; of the text's length."""
    mask = bytearray(len(text))
    for match in _WORD.finditer(text):
        if match.group().lower().replace("’", "'") not in STYLE_WORDS:
            mask[match.start() : match.end()] = b"\1" * len(match.group())
    return mask
