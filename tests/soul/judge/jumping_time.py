"""An event loop whose clock jumps to the next event, so that hours take a second and times are exact on any machine."""

import asyncio
import selectors


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop that never waits: where it has nothing to do it sets its clock to the next event."""

    def __init__(self):
        super().__init__(Jump(self))
        self.now = 0.0

    def time(self):
        return self.now


class Jump(selectors.SelectSelector):
    def __init__(self, loop):
        super().__init__()
        self.loop = loop

    def select(self, timeout=None):
        assert timeout is not None, "nothing will ever happen: calls hang"
        self.loop.now += timeout
        return []


def simulate(main, loop_factory=JumpingLoop, seconds=3600):
    """Run `main(loop)`; longer than this is a hang."""

    async def whole():
        async with asyncio.timeout(seconds):
            return await main(asyncio.get_running_loop())

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(whole())
