"""Ctrl-C and SIGTERM: finish the chunk, keep what there is, and then end in the usual way."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from inbounds.sampling.draws import Draws

__all__ = ["Interrupted", "Interrupts", "end_like_ctrl_c"]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during `sample`. `draws` holds everything until then.

    It is a KeyboardInterrupt, so that a program that is stopped does stop; catch it by name to go on with `draws`.

    Example:
        >>> kernel = ib.sgld(ib.Posterior({"x": dist.Gamma(2.0, 1.0)}))
        >>> try:
        ...     draws = ib.sample(kernel, 0.05, 150, burn_in=100, progress=False)
        ... except ib.Interrupted as error:
        ...     draws = error.draws
        >>> draws.num_draws
        50
    """

    def __init__(self, message: str, draws: Draws):
        super().__init__(message)
        self.draws = draws
        end_like_ctrl_c()


def end_like_ctrl_c() -> None:
    """See to it that a program that such an error ends has the exit status of Ctrl-C, 130.

    Python gives it to KeyboardInterrupt itself alone; a subclass would end with 1, as any error.
    """
    before = sys.excepthook

    def hook(kind: Any, error: Any, traceback: Any) -> None:
        before(kind, error, traceback)
        interactive = hasattr(sys, "ps1")
        if issubclass(kind, KeyboardInterrupt) and kind is not KeyboardInterrupt and not interactive:
            raise SystemExit(128 + signal.SIGINT)

    if getattr(before, "__qualname__", None) != hook.__qualname__:
        sys.excepthook = hook


class Interrupts:
    """While it is entered, a signal is only noted: `pending` is its number. A second Ctrl-C does not wait.

    Only the main thread can handle signals; in others, and for signals that are ignored, nothing changes.

    Args:
        terminate: whether SIGTERM, too, is to wait for the end of a chunk: where something outlives the process.
    """

    def __init__(self, terminate: bool):
        self.signals = (signal.SIGINT, signal.SIGTERM) if terminate else (signal.SIGINT,)
        self.pending = 0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in self.signals:
                handler = signal.getsignal(number)
                if handler not in (signal.SIG_IGN, None):
                    self.before[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        if self.pending and error is None:  # it came after the last look
            signal.raise_signal(self.pending)

    def _note(self, number: int, frame: Any) -> None:
        if self.pending and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.pending = number

    def agree(self, due: bool) -> tuple[int, bool]:
        """(the signal that has come, whether a checkpoint is due), for any process of the run: all must do the same."""
        if jax.process_count() == 1:
            return self.pending, due
        from jax.experimental import multihost_utils

        signals, dues = np.max(multihost_utils.process_allgather(np.asarray([self.pending, due], np.int32)), axis=0)
        return int(signals), bool(dues)

    def end(self, number: int, message: str, draws: Draws) -> BaseException:
        """What to raise for a signal, once everything is saved."""
        handler = self.before.get(number)
        if callable(handler) and handler is not signal.default_int_handler:
            handler(number, None)  # the program's own, which may well raise something else
        if number == signal.SIGINT:
            return Interrupted(message, draws)
        print(f"inbounds: {message}", file=sys.stderr)
        return SystemExit(128 + number)
