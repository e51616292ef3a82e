"""What comes out of the event loop that measures."""

import asyncio

import pytest

from paceline.errors import ServerFaultError
from paceline.live.event_loop import run_in_loop


async def raising(*errors: Exception) -> None:
    async def one(error: Exception) -> None:
        raise error

    async with asyncio.TaskGroup() as outer:
        outer.create_task(one(errors[0]))
        async with asyncio.TaskGroup() as inner:
            for each in errors[1:]:
                inner.create_task(one(each))


def test_a_cause_that_a_user_can_act_on_is_raised_alone() -> None:
    """A full disk is reported as an internal fault."""
    with pytest.raises(OSError, match="full"):
        run_in_loop(raising(ValueError("x"), OSError(28, "full")))
    with pytest.raises(ServerFaultError, match="gone"):
        run_in_loop(raising(OSError(28, "full"), ServerFaultError("gone")))


def test_a_fault_of_ours_stays_whole() -> None:
    """Half of a traceback cannot be mended."""
    with pytest.raises(ExceptionGroup):
        run_in_loop(raising(ValueError("x"), ValueError("y")))
