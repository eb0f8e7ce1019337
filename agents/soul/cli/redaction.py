"""Replace keys by `***` in texts that leave the process: error messages, logs, tracebacks.

Endpoints repeat a wrong key in their answer, HTTP libraries log whole URLs, and a traceback may contain any text. A key
is the value of an environment variable with a name like OPENAI_API_KEY, or of one that `watch` names. Short values
stay, because blanking "a" would garble every text.
"""

import os
import re
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit, urlunsplit

SHORTEST = 8  # shorter values are not blanked
BLANK = "***"
_SECRET_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
# Names of parameters in a URL that hold a key: api_key, subscriptionKey, X-Amz-Signature, sig.
_PARAMETER = (
    r"[\w.~-]{0,60}(?:key|token|secret|passw(?:or)?d|pwd|signature|credentials?|authorization)"
    r"|(?:[\w.~-]{0,60}[_.~-])?(?:sig|auth|code)"
)
_SECRET_PARAMETER = re.compile(_PARAMETER, re.IGNORECASE)
_IN_URL = re.compile(rf"(?P<user>://)[^/\s@'\"]{{1,500}}@|(?P<name>[?&](?:{_PARAMETER})=)[^&#\s'\"<>]+", re.IGNORECASE)
# The format of many endpoints' keys. On a command line, the value after the name of a secret is a key too.
LIKE_A_KEY = re.compile(r"\bsk-[\w-]{6,}")
_NAMED = re.compile(r"((?:key|token|secret|password)\s*=\s*['\"]?)[\w-]{8,}", re.IGNORECASE)
_watched: set[str] = set()


def watch(name: str) -> None:
    """Blank the value of this environment variable too, whatever its name is."""
    _watched.add(name)


def blank(text: str, key: str) -> str:
    """The text with this key replaced by `***`; unchanged if the key is too short, like EMPTY of a local server."""
    return text.replace(key, BLANK) if len(key) >= SHORTEST else text


def redact(text: str) -> str:
    """The text with every key of the environment, and every secret in a URL, replaced by `***`."""
    names = {name for name in os.environ if _SECRET_NAME.search(name)} | _watched
    keys = {os.environ.get(name, "").strip() for name in names}
    for key in sorted(keys, key=len, reverse=True):  # longest first: a key may be the beginning of another
        text = blank(text, key)
    return _IN_URL.sub(lambda match: f"{match['user']}{BLANK}@" if match["user"] else f"{match['name']}{BLANK}", text)


def redact_guessing(text: str) -> str:
    """Like `redact`, and blank anything that looks like a key: for texts that repeat what the user typed."""
    return _NAMED.sub(rf"\g<1>{BLANK}", LIKE_A_KEY.sub(BLANK, redact(text)))


def without_secret_values(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line with the values of options like `--hf-token` and `--api-key` replaced by `***`."""
    shown: list[str] = []
    in_secret = False  # after such an option, which may have several values
    for word in words:
        if not word.startswith("-"):
            shown.append(BLANK if in_secret else word)
            continue
        name, equals, _ = word.partition("=")
        in_secret = _SECRET_NAME.search(name.replace("-", "_")) is not None
        shown.append(f"{name}={BLANK}" if in_secret and equals else word)
    return tuple(shown)


def shown_url(url: str) -> str:
    """A URL that is safe to show: no user, no password, and of its query only the version parameters."""
    parts: SplitResult = urlsplit(url)
    query = "&".join(_shown_parameter(part) for part in parts.query.split("&") if part)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query, fragment=""))


def _shown_parameter(part: str) -> str:
    name, equals, _ = part.partition("=")
    return part if "version" in name.lower() else f"{name}={BLANK}" if equals else BLANK


def secret_parameter(url: str) -> str | None:
    """The first query parameter of a URL whose name suggests a key; None if there is none."""
    names = (part.partition("=")[0] for part in urlsplit(url).query.split("&"))
    return next((name for name in names if _SECRET_PARAMETER.fullmatch(name)), None)
