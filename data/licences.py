"""The licences of the sources of task files, and whether you may publish rows that are made from them.

Every source in `data.sources` has one of these licences, and the data card of a training file repeats it. They are our
reading of the terms. "unclear" means that we know of no permission, and counts as no.
"""

from typing import NamedTuple

from soul.rows.data_card import Share, SourceLicence


class Licence(NamedTuple):
    """The terms of a source."""

    name: str  # for people
    hub: str = ""  # its identifier on the Hugging Face hub, if it has one
    share: Share = "yes"  # whether rows that are made from the source may be published for everyone
    why: str = ""  # why not


class Origin(NamedTuple):
    """A place where source files are published."""

    where: str
    licence: Licence

    def __str__(self) -> str:
        return f"{self.where} ({self.licence.name})"

    def stated(self) -> SourceLicence:
        """The place and its terms, for a data card."""
        terms = self.licence
        return SourceLicence(source=self.where, licence=terms.name, hub=terms.hub, share=terms.share, why=terms.why)


_FOR_EVERY_USE = "it forbids commercial use, and a public dataset is open to every use"
_EVALUATION = "its authors ask that it is only used for evaluation"
_NOVELS = "the licence is that of the questions, and many of the novels are in copyright"
APACHE = Licence("Apache-2.0", "apache-2.0")
MIT = Licence("MIT", "mit")
CC_BY_SA_3 = Licence("CC BY-SA 3.0", "cc-by-sa-3.0")
CC_BY_SA_4 = Licence("CC BY-SA 4.0", "cc-by-sa-4.0")
PUBLIC_DOMAIN = Licence("public domain in the USA")
CC_BY_NC_4 = Licence("CC BY-NC 4.0", "cc-by-nc-4.0", "no", _FOR_EVERY_USE)
PRISM = Licence("people's texts CC BY 4.0, models' replies CC BY-NC 4.0", "", "no", _FOR_EVERY_USE)
ARENA = Licence("prompts CC BY 4.0, answers CC BY-NC 4.0", "", "no", _FOR_EVERY_USE)
APACHE_NOT_COMMERCIAL = Licence("Apache-2.0; not for commercial use", "", "no", _FOR_EVERY_USE)
MIT_FOR_EVALUATION = Licence("MIT; for evaluation only", "mit", "no", _EVALUATION)
MIT_NOVELS = Licence("MIT; the texts are novels'", "", "no", "most of the novels are in copyright")
APACHE_NOVELS = Licence("Apache-2.0; the texts are novels'", "", "unclear", _NOVELS)
COMPETITION = Licence("the competition's terms", "", "no", "the competition's terms do not let you pass its data on")
NO_LICENCE = Licence("no licence", "", "unclear", "its authors state no licence")
BY_THEIR_AUTHORS = Licence(
    "the texts belong to their authors", "", "unclear", "the people who wrote the texts have given no licence"
)
