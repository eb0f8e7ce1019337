"""Play one session of a three-turn task on a real vLLM engine through `SoulAgentLoop`; write what happened as JSON.

python -m tests.e2e.three_turns MODEL OUT.json
"""

import asyncio
import json
import sys
import uuid
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

from soul.judge import Judge
from soul.message import Message
from soul.policy import Players
from soul.task import Task
from soul.task_types import Episode, Metric, Row, Verdict

PARTNER = ["Are you sure? Say more.", "And what about the second box?"]
SHOWN: list[list[Message]] = []  # what the policy was shown, turn by turn


class TalkRow(Row):
    topic: str


class Talk(Task[TalkRow]):
    """The policy speaks three times; a scripted partner speaks in between; the feedback stands in the instructions."""

    name: ClassVar[str] = "talk"
    row_type = TalkRow
    headline: ClassVar[Metric] = Metric("length")

    def prompt(self, row: TalkRow, feedback: str | None = None) -> list[Message]:
        extra = f" A coach says: {feedback}" if feedback else ""
        return [
            {"role": "system", "content": f"You talk about {row.topic}.{extra}"},
            {"role": "user", "content": "Hello. Where is the tomato?"},
        ]

    async def play(self, row: TalkRow, players: Players, feedback: str | None) -> Episode:
        messages, base = self.prompt(row, feedback), self.prompt(row)
        for partner in [*PARTNER, None]:
            SHOWN.append(list(messages))
            said = await players.policy().say(messages, base=base)
            turn: list[Message] = [{"role": "assistant", "content": said}]
            if partner is not None:
                turn.append({"role": "user", "content": partner})
            messages, base = messages + turn, base + turn
        return Episode({"policy": messages}, "turn_limit")

    async def judge(self, row: TalkRow, episode: Episode, judge: Judge) -> Verdict:
        return Verdict(0.5)

    async def feedback(self, row: TalkRow, episode: Episode, verdict: Verdict, judge: Judge) -> str | None:
        return "mind the second box"


@dataclass
class RecordingServer:
    """verl's server client, with vLLM's engine behind it and a record of every call."""

    engine: Any
    calls: list[dict[str, Any]] = field(default_factory=list)

    async def generate(self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        from verl.workers.rollout.replica import TokenOutput
        from vllm import SamplingParams

        # Some turns end by themselves, some are cut off.
        stops = sampling_params["stop_token_ids"]
        limit = 12 if len(self.calls) % 2 else 200
        params = SamplingParams(
            temperature=1.0, seed=len(self.calls), logprobs=0, max_tokens=limit, stop_token_ids=stops
        )
        final = None
        async for output in self.engine.generate(
            {"prompt_token_ids": prompt_ids}, params, request_id=f"{request_id}-{uuid.uuid4().hex}"
        ):
            final = output
        sampled = list(final.outputs[0].token_ids)
        logprobs = [entry[i].logprob for i, entry in zip(sampled, final.outputs[0].logprobs, strict=True)]
        self.calls.append({"prompt": list(prompt_ids), "sampled": sampled, "seat": request_id})
        extra = {"min_global_steps": 3, "max_global_steps": 3}
        return TokenOutput(token_ids=sampled, log_probs=logprobs, extra_fields=extra)


async def play(model: str) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    import ditto.rollout.agent_loop as agent_loop
    from ditto.launching.compose import load_config
    from soul.evaluate.run.vllm_server import ONE_PROCESS
    from soul.rows.task_files import TaskRow
    from soul.testing import Json, fake_gateway

    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=model,
            dtype="float32",
            max_model_len=2048,
            enforce_eager=True,
            kv_cache_memory_bytes=2**27,
            distributed_executor_backend=ONE_PROCESS[1],  # as the config's
        )
    )
    overrides = ["platform=cpu", "algorithm.objective=ditto", "data.train_files=[x]", "data.val_files=[x]"]
    overrides += [f"actor_rollout_ref.model.path={model}", "data.max_prompt_length=600"]
    config = load_config([*overrides, "data.max_response_length=1024"])
    agent_loop.restore_row = lambda _source, _packed: TaskRow(Talk(), TalkRow(index=0, topic="boxes"), "talk", 0)

    def gateway(*_: str) -> Any:
        return fake_gateway(Json({}))

    agent_loop._gateway = gateway
    server = RecordingServer(engine)
    tokenizer = AutoTokenizer.from_pretrained(model)
    loop = agent_loop.SoulAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=server,
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=SimpleNamespace,
        data_config=DictConfigWrap(OmegaConf.create({})),
        hf_model_type="llama",
    )
    row = {"data_source": "talk", "row": "", "global_steps": 4, "split": "train", "uid": "u", "session_id": 0}
    outputs = await loop.run({"temperature": 1.0}, **row)
    seats = list(dict.fromkeys(call["seat"] for call in server.calls))
    for call in server.calls:
        call["context"] = ("draft", "refined")[seats.index(call.pop("seat"))]
    sequences = [
        {
            "kind": output.extra_fields["ditto"]["kind"],
            "context": "draft" if output.extra_fields["ditto"]["kind"] == "draft" else "refined",
            "prompt_ids": output.prompt_ids,
            "prompt_text": tokenizer.decode(output.prompt_ids),
            "response_ids": output.response_ids,
            "response_mask": output.response_mask,
            "logprobs": output.response_logprobs,
        }
        for output in outputs
    ]
    engine.shutdown()
    return {"calls": server.calls, "sequences": sequences, "shown": SHOWN}


if __name__ == "__main__":
    result = asyncio.run(play(sys.argv[1]))
    with open(sys.argv[2], "w") as out:
        json.dump(result, out)
