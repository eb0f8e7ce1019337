"""verl's agent loop for SOUL's tasks: one call plays one session of a row.

It plays the session with `soul.session.run_session` and hands verl one output per training sequence. verl copies the
last output's reward over all outputs of a session and does not know the kinds of sequences, so each output carries its
own record in `extra_fields["ditto"]`, which `trainer.py` reads. The loop never raises for what happens inside a
session: verl would drop the whole prompt group and pad the hole without a word.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from ditto.batch.sequence_record import SequenceRecord
from ditto.judging.actor import remote_gateway
from ditto.rollout.session_sequences import SessionSequence, session_sequences, token_sequences
from ditto.rollout.token_seat import TokenSeat
from ditto.rows.dataset import restore_row
from ditto.run.live_traces import LiveTraces
from ditto.settings import Settings
from soul import tasks
from soul.chat.control_tokens import ControlTokens
from soul.chat.model_chat import stop_ids
from soul.chat.rendering import ChatRenderer
from soul.chat.template_check import fit_template
from soul.cli import logs
from soul.judge import Gateway, GatewaySettings
from soul.policy import Players
from soul.record import digest
from soul.rows.task_files import TaskRow
from soul.session import Context, Session, run_session

logger = logging.getLogger(__name__)


@cache
def _gateway(settings_json: str) -> Gateway:
    """One gateway per worker process; the run's judge actor sends its requests."""
    logs.set_up()  # once in each worker
    return remote_gateway(GatewaySettings.model_validate_json(settings_json))


@cache
def _live_traces(run_dir: Path) -> LiveTraces:
    """One writer per worker process."""
    return LiveTraces(run_dir)


_RENDERERS: dict[str, ChatRenderer] = {}  # by model path: verl creates a loop for every session


class SoulAgentLoop(AgentLoopBase):
    """Registered as `soul` in agents/soul/agents.yaml."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # verl picks a token builder by the model's type, not by its template, and some refuse other tokenizers. Ours
        # reads the template (`renderer`); verl's is not used.
        super().__init__(*args, **{**kwargs, "hf_model_type": None})

    @property
    def renderer(self) -> ChatRenderer:
        """Renders prompts with the template of the run, which the launcher has checked."""
        model = self.config.actor_rollout_ref.model
        if model.path not in _RENDERERS:
            trust, template = bool(model.get("trust_remote_code")), model.get("custom_chat_template")
            if template is not None:
                self.tokenizer.chat_template = template
            kwargs = dict(self.apply_chat_template_kwargs)
            found = fit_template(self.tokenizer, stop_ids(model.path, trust, self.tokenizer), kwargs)
            escape = ControlTokens(self.tokenizer).escape
            _RENDERERS[model.path] = ChatRenderer(self.tokenizer, found.stop_ids, found.template, kwargs, escape)
        return _RENDERERS[model.path]

    @cached_property
    def settings(self) -> Settings:
        """Our part of the config. Reading it takes milliseconds; verl creates a loop for every session."""
        return Settings.from_config(self.config)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        """Play one session of a row.

        Args:
            sampling_params: verl's, those of validation at validation.
            kwargs: the dataset's fields, and `uid`, `session_id`, `global_steps` of verl.

        Returns:
            At least one output. At validation exactly one.
        """
        settings = self.settings
        tasks.configure(settings.tasks)
        task_row = restore_row(kwargs["data_source"], kwargs["row"])
        step = int(kwargs["global_steps"])
        validate = kwargs["split"] == "val"
        seats: list[tuple[Context, TokenSeat]] = []
        sampling = {k: v for k, v in sampling_params.items() if k != "max_tokens"}

        def new_players(context: Context) -> Players:
            def new_seat(_name: str) -> TokenSeat:
                limit = self.rollout_config.prompt_length
                if context == "feedback":
                    limit += self.config.data.max_feedback_length
                response, turn = self.rollout_config.response_length, self.config.data.max_turn_length
                in_dialogue = task_row.task.policy_turns > 1
                seat = TokenSeat(self, self.renderer, sampling, limit, response, turn if in_dialogue else response)
                seats.append((context, seat))
                return seat

            return Players(new_seat)

        session = await run_session(
            task_row.task,
            task_row.row,
            new_players,
            await self.gateway(),
            settings.refine,
            step=step,
            refine=settings.objective.refines and not validate,
            contexts=settings.objective.teacher == "feedback" and not validate,
            canary=not validate and _asks_canary(settings, task_row, f"{kwargs['uid']}_{kwargs['session_id']}"),
        )
        longest = self.rollout_config.prompt_length + self.config.data.max_feedback_length
        teacher_prompts = await _teacher_prompts(session, longest) if session.contexts else {}
        builder = _SequenceBuilder(session, kwargs, settings, self.tokenizer.eos_token_id, teacher_prompts)
        outputs = list(builder.build(validate, task_row))
        if not validate:
            await _live_traces(settings.run_dir).append(step, outputs[0].extra_fields["trace"])
        return outputs

    async def gateway(self) -> Gateway:
        """The judges of this process; without Ray (`benchmarks/one_process.py`) a subclass connects them."""
        return _gateway(self.settings.gateway.model_dump_json())


def _asks_canary(settings: Settings, row: TaskRow, session: str) -> bool:
    """Whether the canary scores the draft of this session: of tasks that are judged, the share that is configured."""
    drawn = int(digest(session)[:8], 16) / 16**8
    return bool(row.task.calls_per_episode.get("judge")) and drawn < settings.gateway.policy.canary_share


async def _teacher_prompts(session: Session, longest: int) -> dict[int, tuple[int, ...]]:
    """The prompts of the draft's sequences with the feedback in them, by the sequence's `id`.

    A sequence whose prompt would be too long, or does not begin with its seat's instructions, is missing.
    """
    prompts: dict[int, tuple[int, ...]] = {}
    for name, seat in session.draft.players.seats.items():
        assert isinstance(seat, TokenSeat)
        for sequence in seat.sequences if name in session.contexts else ():
            messages = session.contexts[name].applied_to(sequence.messages[: sequence.opening])
            ids = await seat.render(messages) if messages else []
            if 0 < len(ids) <= longest:
                prompts[id(sequence)] = tuple(ids)
    return prompts


def _groups(row: TaskRow) -> dict[str, str]:
    """What the row belongs to. An error in the task's code costs the trace its groups, and no session."""
    try:
        return dict(row.task.groups(row.row))
    except Exception:  # noqa: BLE001 - a session that raises would be padded without a message
        logger.exception("%s: the task's groups failed", row.where)
        return {}


class _SequenceBuilder:
    """Turn a session into verl's outputs, one per sequence."""

    def __init__(
        self,
        session: Session,
        kwargs: dict[str, Any],
        settings: Settings,
        filler: int,
        teacher_prompts: Mapping[int, tuple[int, ...]],
    ) -> None:
        self.session = session
        self.prompt = str(kwargs["uid"])
        self.id = f"{kwargs['uid']}_{kwargs['session_id']}"
        self.step = int(kwargs["global_steps"])
        self.kinds = settings.objective.kinds
        self.filler = filler
        self.teacher_prompts = teacher_prompts
        self.draft_reward, self.refined_reward = (
            attempt.verdict.reward if attempt and attempt.verdict else None
            for attempt in (session.draft, session.refined)
        )

    def build(self, validate: bool, row: TaskRow) -> Iterator[AgentLoopOutput]:
        sequences = session_sequences(self.session, ("draft",) if validate else self.kinds)
        outputs = [self._output(i, sequence) for i, sequence in enumerate(sequences) if sequence.masked is None]
        if not outputs:
            outputs = [self._masked_placeholder()]
        if validate:
            outputs = outputs[-1:]
        version = max(output.extra_fields["max_global_steps"] for output in outputs)
        trace = self.session.to_record(row.file, row.number)
        trace.groups = _groups(row)
        trace.session, trace.prompt, trace.model_version = self.id, self.prompt, version
        trace.out_of_tokens = self._out_of_tokens()
        trace.sequences = [sequence.summary() for sequence in sequences]
        if validate:
            for summary in trace.sequences:
                summary.masked = summary.masked or "validation"
        # The trace line goes with the first output; verl reads reward_extra_info of the last one.
        outputs[0].extra_fields["trace"] = trace.to_line()
        info = {"trace": outputs[0].extra_fields["trace"]} if validate else {}
        for output in outputs:
            output.extra_fields["reward_extra_info"] = info
        yield from outputs

    def _out_of_tokens(self) -> dict[str, int]:
        """Sequences of either episode that a limit on tokens has cut: a turn, or all turns after it."""
        attempts = {"draft": self.session.draft, "refined": self.session.refined}
        return {
            name: sum(sequence.full or sequence.cut for _, sequence in token_sequences(attempt))
            for name, attempt in attempts.items()
            if attempt
        }

    def _output(self, place: int, sequence: SessionSequence) -> AgentLoopOutput:
        attempt, tokens, kind = sequence.attempt, sequence.tokens, sequence.kind
        assert attempt.verdict is not None
        reward, turns = attempt.verdict.reward, 2 * tokens.turns
        record = SequenceRecord(
            kind,
            self.prompt,
            self.id,
            True,
            turns,
            sum(tokens.response_mask),
            self.draft_reward,
            self.refined_reward,
            teacher_prompt=self.teacher_prompts.get(id(tokens), ()) if kind == "draft" else (),
            task=self.session.task,
            place=place,
            read_tokens=tokens.read_tokens,
            cached_tokens=tokens.cached_tokens,
        )
        low, high = tokens.versions or (self.step - 1, self.step - 1)
        return AgentLoopOutput(
            prompt_ids=list(sequence.prompt_ids),
            response_ids=list(tokens.response_ids),
            response_mask=list(tokens.response_mask),
            response_logprobs=list(tokens.response_logprobs),
            reward_score=reward,
            num_turns=turns,
            metrics=AgentLoopMetrics(generate_sequences=attempt.seconds.get("play", 0.0)),
            extra_fields={"ditto": asdict(record), "min_global_steps": low, "max_global_steps": high},
        )

    def _masked_placeholder(self) -> AgentLoopOutput:
        """A masked placeholder: the session is counted, nothing of it is trained."""
        record = SequenceRecord("none", self.prompt, self.id, False, 0, 0, self.draft_reward, self.refined_reward)
        return AgentLoopOutput(
            prompt_ids=[self.filler],
            response_ids=[self.filler],
            response_mask=[0],
            response_logprobs=[0.0],
            reward_score=0.0,
            num_turns=0,
            metrics=AgentLoopMetrics(),
            extra_fields={
                "ditto": asdict(record),
                "min_global_steps": self.step - 1,
                "max_global_steps": self.step - 1,
            },
        )
