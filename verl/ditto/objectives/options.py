"""The options of `algorithm` that objectives read, validated. Each objective's `options` says which ones it reads."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ditto.objectives.spec import Part

_CHECKED = ConfigDict(extra="forbid", frozen=True)


class ErlOptions(BaseModel):
    """Which refined answers ERL imitates (`erl.py`)."""

    model_config = _CHECKED

    accept: Literal["better", "threshold", "positive"] = "better"
    threshold: float = 0.5


class SdpoOptions(BaseModel):
    """SDPO's teacher and divergence (`sdpo.py`)."""

    model_config = _CHECKED

    teacher: Literal["ema", "live", "base"] = "ema"
    teacher_rate: float = Field(default=0.05, gt=0, le=1)
    ratio_clip: float = Field(default=2.0, gt=0)
    alpha: float = Field(default=0.5, ge=0, le=1)
    top_k: int | None = Field(default=100, ge=1)  # None: the whole vocabulary
    tail: bool = True
    weight: float = Field(default=0.5, ge=0, le=1)


class ObjectiveOptions(BaseModel):
    """What `algorithm` holds for the objectives; the config says what each option means."""

    model_config = _CHECKED

    feedback_coef: float = Field(default=1.0, ge=0)
    refined_old_logp: Literal["recompute", "rollout"] = "recompute"
    part_normaliser: Literal["part", "step"] = "part"
    norm_adv_by_std_in_grpo: bool = True
    std_floor: float = Field(default=0.0, ge=0)
    skip_idle: bool = False
    shaping_gamma: float = Field(default=0.1, gt=0)
    erl: ErlOptions = ErlOptions()
    sdpo: SdpoOptions = SdpoOptions()

    def weight(self, part: Part) -> float:
        """The weight of a part in the loss."""
        named = {
            "feedback_coef": self.feedback_coef,
            "sdpo.weight": self.sdpo.weight,
            "1 - sdpo.weight": 1 - self.sdpo.weight,
        }
        return named[part.weight] if isinstance(part.weight, str) else part.weight
