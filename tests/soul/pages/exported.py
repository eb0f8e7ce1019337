"""A page that was written as a file, without a browser: its elements, its scripts, and the answers that it carries."""

import base64
import gzip
import json
from html.parser import HTMLParser


class Exported(HTMLParser):
    """What a browser would make of a file.

    Attributes:
        elements: (tag, attributes) of each.
        scripts: id or type of a script, or "style" -> its content.
        answers: address of the API -> the answer that the file has for it.
    """

    def __init__(self, file):
        super().__init__(convert_charrefs=True)
        self.elements, self.scripts, self.answers, self._in = [], {}, {}, None
        self.text = file.read_bytes().decode("utf-8")
        self.feed(self.text)
        for name in self.scripts:
            if name.startswith("data:"):
                self.answers[name.removeprefix("data:")] = json.loads(self._unpacked(name))
        index = json.loads(self._unpacked("texts"))
        parts = [self._unpacked(f"part-{place}").split("\n") for place in range(len(index["starts"]))]
        self.sizes = [len(part) for part in parts]
        assert index["starts"] == [sum(self.sizes[:place]) for place in range(len(parts))]
        lines = [json.loads(line) for part in parts for line in part]
        self.answers |= dict(zip(index["addresses"], lines, strict=True))

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self._in = dict(attributes).get("id") or dict(attributes).get("type") or tag
            self.scripts[self._in] = ""

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._in = None

    def handle_data(self, data):
        if self._in:
            self.scripts[self._in] += data

    def _unpacked(self, name):
        return gzip.decompress(base64.b64decode(self.scripts[name])).decode("utf-8")

    def overview(self):
        return self.answers["run/run/overview"]

    def columns(self):
        """The columns of all sessions; texts that repeat are spelt out."""
        known = self.answers["run/run/index"]["columns"]
        return {
            name: [column["values"][code] for code in column["codes"]] if isinstance(column, dict) else column
            for name, column in known.items()
        }

    def sessions(self):
        """Id -> record of each session with its texts."""
        start = "run/run/session/"
        return {int(k.removeprefix(start)): v for k, v in self.answers.items() if k.startswith(start)}
