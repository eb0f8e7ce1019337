"""verl's agent loop for SOUL's tasks: one call plays one session of a row.

It plays the session with `soul.session.run_session` and hands verl one output per training sequence. verl copies the
last output's reward over all outputs of a session and does not know the kinds of sequences, so each output carries its
own record in `extra_fields["ditto"]`, which `trainer.py` reads. The loop never raises for what happens inside a
session: verl would drop the whole prompt group and pad the hole without a word.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from ditto.batch.sequence_record import SequenceRecord
from ditto.judging.actor import remote_gateway
from ditto.objectives.spec import Kind, Objective
from ditto.policies import FIRST_SEAT
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
from soul.session import Attempt, Context, Session, run_session
from soul.shown_answers import note_answers

TeacherPrompts = Mapping[tuple[str, int], tuple[int, ...]]  # seat and number of its sequence -> the draft's prompt


@cache
def _gateway(settings_json: str) -> Gateway:
    """One gateway per worker process; the run's judge actor sends its requests."""
    logs.set_up()  # once in each worker
    return remote_gateway(GatewaySettings.model_validate_json(settings_json))


_live_traces = cache(LiveTraces)  # by run folder: one writer per worker process
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
        """Play one session of a row: at least one output, and exactly one at validation.

        Args:
            kwargs: the dataset's fields, and `uid`, `session_id`, `global_steps` of verl.
        """
        settings = self.settings
        tasks.configure(settings.tasks)
        task_row = restore_row(kwargs["data_source"], kwargs["row"])
        step = int(kwargs["global_steps"])
        validate = kwargs["split"] == "val"
        seats: list[tuple[Context, TokenSeat]] = []
        sampling = {k: v for k, v in sampling_params.items() if k != "max_tokens"}

        def new_players(context: Context) -> Players:
            def new_seat(name: str) -> TokenSeat:
                policy = settings.policy_of(name)
                limit = self.rollout_config.prompt_length
                if context == "feedback":
                    limit += self.config.data.max_feedback_length
                response, turn = self.rollout_config.response_length, self.config.data.max_turn_length
                in_dialogue = task_row.task.policy_turns > 1
                chosen = sampling | (policy.sampling if policy else {})
                seat = TokenSeat(self, self.renderer, chosen, limit, response, turn if in_dialogue else response)
                seats.append((context, seat))
                return seat

            return Players(new_seat)

        session = await run_session(
            task_row.task,
            task_row.row,
            new_players,
            _gateway(settings.gateway.model_dump_json()),
            settings.refine,
            step=step,
            refine=not validate and _sides(settings, task_row, step, lambda each: each.refines),
            contexts=not validate and _sides(settings, task_row, step, lambda each: each.teacher == "feedback"),
            hidden=hidden_dimensions(task_row, step) if not validate else frozenset(),
            canary=not validate and _asks_canary(settings, task_row, f"{kwargs['uid']}_{kwargs['session_id']}"),
        )
        outputs = [
            await self._outputs(side, task_row, str(kwargs["uid"]), kwargs["session_id"], step, validate=validate)
            for side in (session, *session.others)
        ]
        if not validate:
            return [output for of_side in outputs for output in of_side]
        lines = [of_side[0].extra_fields["trace"] for of_side in outputs]
        outputs[0][0].extra_fields["reward_extra_info"] = {"trace": "\n".join(lines)}
        return outputs[0]

    async def _outputs(
        self, session: Session, row: TaskRow, uid: str, number: Any, step: int, *, validate: bool
    ) -> list[AgentLoopOutput]:
        """The outputs of one side's session, which is appended to the live traces."""
        settings, policy = self.settings, self.settings.policy_of(session.side or FIRST_SEAT)
        objective = _objective_of(settings, session.side, step)
        outputs = session_outputs(
            session,
            objective.kinds if objective else (),
            row,
            await teacher_prompts(session, self.rollout_config.prompt_length + self.config.data.max_feedback_length),
            self.tokenizer.eos_token_id,
            uid=uid,
            number=number,
            step=step,
            validate=validate,
            with_tokens=settings.run.trace_tokens,
            policy=policy.name if policy else "",
        )
        if not validate:
            await _live_traces(settings.run_dir).append(step, outputs[0].extra_fields["trace"])
        return outputs


def _objective_of(settings: Settings, side: str, step: int) -> Objective | None:
    """The objective that a step trains a side's sequences by; None: nobody learns from them."""
    policy = settings.policy_of(side or FIRST_SEAT)
    if policy is None:
        return settings.objective
    return policy.objective if policy in settings.in_turn(step) else None


def _sides(settings: Settings, row: TaskRow, step: int, wants: Callable[[Objective], bool]) -> bool | set[str]:
    """The sides of a play whose objective wants something; where there are no policies, whether it does."""
    if not settings.policies:
        return wants(settings.objective)
    objectives = {side: _objective_of(settings, side, step) for side in ("", *row.task.further_sides)}
    return {side for side, objective in objectives.items() if objective and wants(objective)}


def hidden_dimensions(row: TaskRow, step: int) -> frozenset[str]:
    """The dimensions that are hidden from a row's judge in a step: the same for its whole group, and after a resume."""
    return row.task.hidden_dimensions(f"{row.task.name}:{row.number}:{step}")


def _asks_canary(settings: Settings, row: TaskRow, session: str) -> bool:
    """True if the canary scores this session: the configured share of the sessions of tasks that are judged."""
    drawn = int(digest(session)[:8], 16) / 16**8
    return bool(row.task.calls_per_episode.get("judge")) and drawn < settings.gateway.canary_share


def _output(record: SequenceRecord, session: Session, step: int) -> AgentLoopOutput:
    """A training sequence as verl takes it. The weights are those of the step before unless the record knows better."""
    attempt = session.refined if record.refined else session.draft
    low, high = record.versions or (step - 1, step - 1)
    return AgentLoopOutput(
        prompt_ids=list(record.prompt_ids),
        response_ids=list(record.response_ids),
        response_mask=list(record.response_mask),
        response_logprobs=list(record.response_logprobs),
        reward_score=record.reward,
        num_turns=record.turns,
        metrics=AgentLoopMetrics(generate_sequences=attempt.seconds.get("play", 0.0) if attempt else 0.0),
        extra_fields={"ditto": record.packed(), "min_global_steps": low, "max_global_steps": high},
    )


def session_outputs(
    session: Session,
    kinds: Sequence[Kind],
    row: TaskRow,
    prompts: TeacherPrompts,
    filler: int,
    *,
    uid: str,
    number: Any,
    step: int,
    validate: bool,
    with_tokens: bool = False,
    policy: str = "",
) -> list[AgentLoopOutput]:
    """The session as verl takes it: one output per sequence that may be trained; a masked one if there is none.

    Args:
        kinds: those that the objective trains.
        prompts: of the drafts, with the feedback in them.
        filler: a token.
        uid, number: verl's ids of the prompt's group and of the session in it.
        with_tokens: write the tokens into the trace.
        policy: the policy that played the session, where a run trains several.
    """
    name, uid = (f"{each}:{session.side}" if session.side else each for each in (f"{uid}_{number}", uid))
    records = session_sequences(session, ("draft",) if validate else kinds, uid, name, prompts)
    trained = [record for record in records if record.masked is None]
    if not trained:  # the session is counted, and nothing of it is trained
        one = {"prompt_ids": [filler], "response_ids": [filler], "response_mask": [0], "response_logprobs": [0.0]}
        rewards = (each.verdict.reward if each and each.verdict else None for each in (session.draft, session.refined))
        trained = [SequenceRecord("none", uid, name, False, 0, 0, *rewards, **one)]  # type: ignore[arg-type]
    for record in (*records, *trained):
        record.policy = policy
    outputs = [_output(record, session, step) for record in (trained[-1:] if validate else trained)]
    trace = session.to_record(row.file, row.number)
    trace.groups = dict(row.task.groups(row.row))
    episodes = [each.episode if each else None for each in (session.draft, session.refined)]
    note_answers(trace, row.task, row.row, episodes)
    trace.session, trace.prompt, trace.policy = name, uid, policy
    trace.model_version = max(output.extra_fields["max_global_steps"] for output in outputs)
    trace.out_of_tokens = {  # sequences that a limit on tokens has cut: a turn, or all turns after it
        name: sum(sequence.full or sequence.cut for _, _, sequence in seat_sequences(attempt))
        for name, attempt in {"draft": session.draft, "refined": session.refined}.items()
        if attempt
    }
    trace.sequences = [record.summary(with_tokens) for record in records]
    if validate:
        for summary in trace.sequences:
            summary.masked = summary.masked or "validation"
    # The trace line goes with the first output; verl reads reward_extra_info of the last one.
    outputs[0].extra_fields["trace"] = trace.to_line()
    info = {"trace": outputs[0].extra_fields["trace"]} if validate else {}
    for output in outputs:
        output.extra_fields["reward_extra_info"] = info
    return outputs


# ---- the sequences of a session --------------------------------------------------------------------------------------


def session_sequences(
    session: Session, kinds: Sequence[Kind], prompt: str, name: str, teacher_prompts: TeacherPrompts
) -> list[SequenceRecord]:
    """Every sequence of the session, kind by kind; first those kinds that are trained.

    Args:
        kinds: the kinds that the objective trains. An episode of none of them is listed once.
        prompt, name: ids of the prompt's group and of the session.
        teacher_prompts: with the feedback in them, where a teacher reads it.
    """
    others: list[Kind] = [] if "draft" in kinds else ["draft"]
    if set(kinds) <= {"draft"}:
        others.append("refined_feedback")
    draft, refined = (
        each.verdict.reward if each and each.verdict else None for each in (session.draft, session.refined)
    )
    found: list[SequenceRecord] = []
    for kind in (*kinds, *others):
        attempt = session.draft if kind == "draft" else session.refined
        if attempt is None:
            continue
        masked = "no verdict" if not attempt.valid else "not in the objective" if kind in others else None
        for seat, number, sequence in seat_sequences(attempt):
            found.append(
                replace(
                    sequence,
                    kind=kind,
                    prompt=prompt,
                    session=name,
                    draft_reward=draft,
                    refined_reward=refined,
                    teacher_prompt=teacher_prompts.get((seat, number), ()) if kind == "draft" else (),
                    task=session.task,
                    place=len(found),
                    seat=seat,
                    masked=masked,
                    prompt_ids=sequence.prompt_ids if kind == "refined_feedback" else sequence.base_prompt_ids,
                )
            )
    return found


def seat_sequences(attempt: Attempt) -> Iterator[tuple[str, int, SequenceRecord]]:
    """The sequences of an episode, seat by seat: the seat, the number among its sequences, the sequence."""
    for name, seat in attempt.players.seats.items():
        assert isinstance(seat, TokenSeat)
        for number, sequence in enumerate(seat.sequences):
            yield name, number, sequence


async def teacher_prompts(session: Session, longest: int) -> dict[tuple[str, int], tuple[int, ...]]:
    """The prompts of the draft's sequences with the feedback in them.

    A sequence whose prompt would be too long, or does not begin with its seat's instructions, is missing.
    """
    prompts: dict[tuple[str, int], tuple[int, ...]] = {}
    for name, number, sequence in seat_sequences(session.draft) if session.contexts else ():
        if name not in session.contexts:
            continue
        seat = session.draft.players.seats[name]
        assert isinstance(seat, TokenSeat)
        messages = session.contexts[name].applied_to(sequence.messages[: sequence.prefix])
        ids = await seat.render(messages) if messages else []
        if 0 < len(ids) <= longest:
            prompts[name, number] = tuple(ids)
    return prompts
