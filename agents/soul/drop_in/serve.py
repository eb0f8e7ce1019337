"""`soul serve [CHECKPOINT] [policy.key=value ...]`: put a model behind an OpenAI-compatible address that plays a user.

    soul serve outputs/ditto-rl-sotopia/global_step_50 -- --enable-auto-tool-choice --tool-call-parser hermes
    soul serve policy.model=mine policy.base_url=http://127.0.0.1:8000/v1 --keep talks.jsonl

vLLM serves a checkpoint (a hub id, a folder, a LoRA adapter), with the arguments after `--`; without one, the endpoint
in the settings plays. Persona and goal come in the system message, and so does the token that ends the conversation.
"""

from __future__ import annotations

import json
import socket
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
from aiohttp import web

from soul.chat.model_chat import served_chat
from soul.cli.arguments import is_setting, output_file, port, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.drop_in.player import Player
from soul.errors import BadSettings
from soul.evaluate.run.checkpoint import Checkpoint
from soul.evaluate.run.options import add_server_options
from soul.evaluate.run.vllm_server import LOG, ServerSettings, free_port, serving
from soul.judge import Endpoint
from soul.judge.call.http import BadStatus, message_of
from soul.judge.roles import policy_endpoint, sections_of
from soul.table import terminal

HOST = "127.0.0.1"
READ = ("api_key_env", "timeout_s", "model", "base_url")  # settings of the policy; the tool's request has all others
TASK = "/api/v1/task"  # where promptfoo asks (PROMPTFOO_REMOTE_GENERATION_URL), with a form of its own


def application(player: Player, keep: Path | None = None) -> web.Application:
    """The server; `keep`: a file to which each conversation is added, one line for each turn of the user."""

    async def ask(body: dict[str, Any], player: Player = player) -> dict[str, Any]:
        completion, transcript = await player.answer(body)
        if keep and transcript:
            with keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**asdict(transcript), **completion["soul"]}, ensure_ascii=False) + "\n")
        return completion

    async def chat(request: web.Request) -> web.Response:
        completion = await ask(body := await request.json())
        if not body.get("stream"):
            return web.json_response(completion)
        choice = completion["choices"][0]
        choice["delta"], completion["object"] = choice.pop("message"), "chat.completion.chunk"
        for place, call in enumerate(choice["delta"].get("tool_calls") or ()):
            call["index"] = place
        lines = f"data: {json.dumps(completion)}\n\ndata: [DONE]\n\n"
        return web.Response(text=lines, content_type="text/event-stream")

    async def task(request: web.Request) -> web.Response:
        asked = await request.json()
        messages = [{"role": "system", "content": asked["instructions"]}, *asked["history"]]
        completion = await ask({"messages": messages}, replace(player, stop=player.stop or "###STOP###"))
        return web.json_response({"result": completion["choices"][0]["message"]["content"]})

    @web.middleware
    async def errors(request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        try:
            return await handler(request)
        except BadStatus as error:
            status, problem = error.status, str(error)
        except (aiohttp.ClientError, TimeoutError) as error:
            status, problem = 502, f"{player.endpoint.name}: {message_of(error)}"
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            status, problem = 400, f"not a chat completion, in the request or in the model's answer: {error!r}"
        problem = player.endpoint.without_secrets(problem, player.endpoint.key())
        return web.json_response({"error": {"message": problem, "type": "soul_serve", "code": status}}, status=status)

    server = web.Application(client_max_size=2**26, middlewares=[errors])
    server.on_cleanup.append(lambda _: player.connection.close())
    server.add_routes([web.post("/v1/chat/completions", chat), web.post(TASK, task)])
    return server


@contextmanager
def upstream(given: Namespace, model: str | None, policy: dict[str, Any], words: Sequence[str]) -> Iterator[Endpoint]:
    """The endpoint that plays the user. A checkpoint is served while the context is open; `words` are for vLLM."""
    if model is None:
        if (endpoint := policy_endpoint(policy)) is None:
            raise BadSettings(
                "There is no model to play the user. Name it: a checkpoint, or policy.model=NAME policy.base_url=URL."
            )
        yield endpoint
        return
    found, number = Checkpoint.find(model, given.base), free_port()
    address = {"model": found.name, "base_url": f"http://{HOST}:{number}/v1", "api_key_env": "none"}
    with TemporaryDirectory(prefix="soul-serve-") as folder:
        chat = served_chat(found.model, found.adapter, words, Path(folder))
        server = ServerSettings(given.tp, given.dp, (*words, *chat.arguments), given.platform)
        with serving(found, server, number, Path(folder) / LOG, terminal(stderr=True)):
            yield Endpoint(**{"timeout_s": 600.0, **policy, **address})


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    at = words.index("--") if "--" in words else len(words)
    parser = Parser(prog="soul serve", description=__doc__)
    add = parser.add_argument
    add("words", nargs="*", metavar="CHECKPOINT | policy.key=value")
    add("--port", type=port, default=8100, help=f"port on {HOST} (default 8100; 0: any free one)")
    add("--stop", default="", metavar="TOKEN", help="ends a conversation whose system message names no token")
    add("--tries", type=positive_int, default=3, help="answers of the model for one turn, at most (default 3)")
    add("--keep", type=output_file, metavar="FILE.jsonl", help="add the conversations to this file")
    add_server_options(parser)
    given = parser.parse_args(words[:at])
    models, settings = [w for w in given.words if not is_setting(w)], [w for w in given.words if is_setting(w)]
    if models[1:]:
        parser.error(f"one model plays, not {len(models)}: {', '.join(models)}")
    known = [f"policy.{key}" for key in (READ[1:2] if models else READ)]
    if unread := [word for word in settings if word.partition("=")[0] not in known]:
        parser.error(f"{unread[0].partition('=')[0]} is not read here; settings are {', '.join(known)}")
    policy = sections_of(settings).get("policy", {})
    try:
        listening = socket.create_server((HOST, given.port))
    except OSError as error:
        raise BadSettings(f"--port {given.port}: {error.strerror}. Pass another one.") from None
    with upstream(given, next(iter(models), None), policy, words[at + 1 :]) as endpoint:
        player = Player(endpoint, endpoint.connection(), given.stop, given.tries)
        address = f"http://{HOST}:{listening.getsockname()[1]}/v1"
        print(f"{endpoint.name} plays the user at {address}. Ctrl-C ends it.", flush=True)
        web.run_app(application(player, given.keep), sock=listening, print=None, access_log=None)
