"""Run each graph in one execution context of TensorRT, on several sets of buffers in turn.

The state has two buffers, a current and a next one, which a stream swaps after each step. So a
graph runs on different combinations of buffers, and is bound to each of them once:

    bind      set addresses   run   capture   launch once           for each combination
    step      launch, wait                                          with CUDA graphs
    step      set the addresses that differ, run, wait              without

A CUDA graph is a recording of all GPU work of one step. A context takes memory in addition to the
scratch block that all contexts share, so there is one for each graph and not one for each
combination. A captured CUDA graph keeps the addresses that the context had during its capture,
whatever is set later; NVIDIA's TensorRT-Edge-LLM relies on the same. NVIDIA's text asks for a
context for each captured graph, so `edgefold.runtime.backends.tensorrt.replays` compares at open.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any

from edgefold.runtime.backends.base import BoundStep
from edgefold.runtime.backends.tensorrt.driver import Address, TensorRtDriver
from edgefold.runtime.backends.tensorrt.memory import Staged
from edgefold.runtime.errors import BackendError

AS_ONE_GRAPH = "as one CUDA graph"


class GraphContext:
    """Runs one graph in an execution context of its engine.

    Args:
        name: The graph's name.
        engine: The graph's engine.
        scratch: Address and size in bytes of the scratch memory that all contexts use in turn.
        staged: The blocks of the inputs and of the outputs that the host writes or reads at every
            step.
        driver: The object that makes the calls of CUDA and TensorRT.
        stream: The CUDA stream on which work is enqueued.
        resources: The stack to which the calls that release context and CUDA graphs are added.

    Attributes:
        launched: Words for the report that say how steps are launched; "" before the first
            capture.
    """

    def __init__(
        self,
        name: str,
        engine: Any,
        scratch: tuple[Address, int],
        staged: tuple[Staged, Staged],
        driver: TensorRtDriver,
        stream: Any,
        resources: ExitStack,
    ):
        self._name, self._driver, self._stream = name, driver, stream
        self._resources = resources
        self._context = driver.context(engine)
        resources.callback(driver.release_context, self._context)
        driver.set_scratch(self._context, *scratch)
        self._inputs, self._outputs = staged
        self._addresses: dict[str, Address] = {}
        for block in staged:
            self._set({name: block.address + offset for name, offset in block.offsets.items()})
        self.launched = ""

    def bind(self, placed: Mapping[str, Address], cuda_graph: bool) -> BoundStep:
        """Run the graph once on device buffers, and capture the run as a CUDA graph.

        Args:
            placed: Addresses of the device buffers by tensor name.
            cuda_graph: Whether to capture; without a capture each step is enqueued by itself.

        Returns:
            A callable that runs the graph on the same buffers again, and waits for the results.
        """
        driver, stream = self._driver, self._stream
        addresses = dict(placed)

        def enqueue() -> None:
            self._set(addresses)
            self._enqueue()

        self.run_plain(addresses)  # what TensorRT settles at a first run is forbidden in a capture
        captured = self._capture() if cuda_graph else None
        if captured is not None:  # the first launch uploads the graph: not at the first step
            driver.launch(captured, stream)
            driver.synchronise(stream)

        def step() -> None:
            try:
                if captured is None:
                    enqueue()
                else:
                    driver.launch(captured, stream)
                driver.synchronise(stream)
            except BackendError as error:
                raise BackendError(f"{self._name} failed in TensorRT: {error}") from error

        return step

    def run_plain(self, placed: Mapping[str, Address]) -> None:
        """Run the graph once on device buffers, without a CUDA graph, and wait for the results."""
        self._set(placed)
        self._enqueue()
        self._driver.synchronise(self._stream)

    def _set(self, addresses: Mapping[str, Address]) -> None:
        for name, address in addresses.items():
            if self._addresses.get(name) != address:
                self._driver.set_address(self._context, name, address)
                self._addresses[name] = address

    def _enqueue(self) -> None:
        driver, stream = self._driver, self._stream
        if self._inputs.is_mirrored:
            driver.to_device(self._inputs.address, self._inputs.host, stream)
        driver.enqueue(self._context, stream)
        if self._outputs.is_mirrored:
            driver.to_host(self._outputs.host, self._outputs.address, stream)

    def _capture(self) -> Any:
        """Capture one run and return it as a CUDA graph.

        If that fails, return None and store the reason in `launched`.
        """
        driver, stream = self._driver, self._stream
        try:
            if not driver.is_capturable(self._context, stream):
                raise BackendError("TensorRT answers that this context cannot be captured")
            driver.begin_capture(stream)
            try:
                self._enqueue()
            except BackendError:
                with suppress(BackendError):  # what was recorded so far; the first reason counts
                    driver.release_graph(driver.end_capture(stream))
                raise
            captured = driver.end_capture(stream)
        except BackendError as error:
            self.launched = f"kernel by kernel, because it was not captured: {error}"
            return None
        self._resources.callback(driver.release_graph, captured)
        self.launched = self.launched or AS_ONE_GRAPH  # another combination may have failed
        return captured
