"""Types of the compiled core; written by tools/make_stub.py."""

import collections.abc
import typing

import numpy

import cudaexec.specs

@typing.final
class Binding:
    """Calls of a method on memory that was chosen once; made by Method.bind().

    Threads may share one: its runs follow one another. It uses the module's current weights
    and, made from a session's method, that session's buffers; once either is closed, run()
    raises ClosedError. The memory stays the caller's.
    """

    def run(self, stream: typing.Any = None) -> None:
        """Runs the method: reads the inputs as they are now, and writes the outputs.

        stream: as for Method.run_on(). Nothing waits, except for outputs in host memory, which
        are there on return; work on the stream of the bound tensors follows the run.

        Raises as a call does; outputs may be partly written then.
        """

@typing.final
class Method:
    """One entry point of a program; call it as the model was called.

    It keeps what it needs of its module alive. Any number of threads may call it. The keyword
    stream= chooses the CUDA stream, see run_on().
    """

    def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        """Run the method."""

    def __repr__(self) -> str: ...
    def bind(self, inputs: typing.Any, outputs: typing.Any) -> Binding:
        """Prepares calls on memory of the caller's own.

        inputs: the arguments, as a tuple (a dict: by name). outputs: one array per flat
        output, in a tuple (or the only one): a writable numpy array, a torch tensor or a
        cudaexec.Tensor of its dtype and shape, any strides, no shared memory; None for
        outputs that are no tensors. The Binding keeps them alive. Its run() reads the
        inputs as they are then. With CUDA graphs, from the second run on, it is one launch,
        and inputs and outputs on the GPU in the program's layout are not copied. It counts
        for GraphOptions.max_graphs, but not for strict.

        Raises as a call does; InputError for outputs that share memory with others;
        NotSupported if the shape of an output is known only after a call.
        """

    @property
    def inputs(self) -> list[cudaexec.specs.TensorSpec]:
        """The flat inputs, in the order of the structure."""

    @property
    def name(self) -> str:
        """Its name in the program."""

    @property
    def outputs(self) -> list[cudaexec.specs.TensorSpec]:
        """The flat outputs, in the order of the structure."""

    def run_on(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        """Runs the method on a CUDA stream.

        method(*args, stream=stream) does the same, unless an input of the method is named
        'stream'.

        stream: an int handle (0 or 1: the legacy default stream, 2: this thread's), a
        torch.cuda.Stream, a cupy stream, an object with __cuda_stream__, or None for the stream
        of the inputs, else one of this thread. It has to live as long as the outputs.

        Raises InputError for anything else and for a program on the CPU; DeviceError for a stream
        of
        another device; else as a call.
        """

    def stats(self) -> dict[str, typing.Any]:
        """How it was used: its entry in Module.stats()["methods"].

        name, which code runs and why other code does not, uses_state, calls, errors and
        containers over all sessions. With CUDA graphs also graphs: captures, replays,
        failures (of captures), evictions (signatures given up for others), reason (why the
        method gets none) and keys, an entry for each signature in each container: inputs,
        phase (eager, warmup, capture, replay or disabled), calls, captures, replays,
        in_place (those on the call's own memory), nbytes kept, and the reason if it is
        disabled. Captures in place are in none of captures, failures and nbytes.
        """

    def warmup(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        """Calls the method until inputs like these have their CUDA graph.

        That is GraphOptions.warmup + 1 calls, one after another: the container that serves
        them gets the graph. Captures in place may follow later. The calls change the state
        as any others do; tokens that they add to a KV cache are forgotten. Without graphs:
        one call, which loads the method's kernels. Raises as a call does.
        """

@typing.final
class Module:
    """A loaded program; made by cudaexec.load(). Any number of threads may use it.

    It is a session by itself: its calls share one set of mutable buffers. session() makes
    further ones.
    """

    def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        """Run the method."""

    def __enter__(self) -> Module: ...
    def __exit__(self, *args: typing.Any) -> None: ...
    def __repr__(self) -> str: ...
    @staticmethod
    def _load(
        pte: bytes,
        ptd: bytes,
        device: str,
        *,
        threads: int,
        verify: bool,
        memory_limit: int,
        isa: str,
        graphs: tuple[collections.abc.Sequence[str], int, int, bool, bool] | None,
    ) -> Module: ...
    @property
    def bytes_per_session(self) -> int:
        """Bytes of mutable buffers that one session owns, once calls have used all of them."""

    def close(self) -> None:
        """Frees everything and closes all sessions, after calls in flight.

        Later calls raise ClosedError; outputs stay valid. Closing twice does nothing.
        """

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def forward(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        """Runs the method 'forward'; calling the object does the same.

        Inputs are given as the model was called, by position or by name: numpy arrays, torch
        tensors, cudaexec tensors, objects with __dlpack__, __cuda_array_interface__ or the buffer
        protocol, of exactly the exported dtypes. Their memory is never written. Outputs have the
        structure that the model returned and own their memory: torch tensors if an input was one,
        else numpy arrays if an input was one (for host memory), else cudaexec.Tensor.

        A program on a GPU runs on the CUDA stream given by the keyword stream= (see
        Method.run_on),
        else on the stream of the inputs, else on one of this thread. It copies host inputs to the
        GPU. If all tensor inputs are in host memory, so are the outputs, and the call waits for
        them;
        else they are on the GPU, nothing waits, and work on the inputs' stream follows the call.

        Raises InputError, ShapeError, DtypeError or DeviceError, naming the input, before
        anything
        runs; OutOfMemory; ClosedError.
        """

    def load_weights(self, weights: dict[str, typing.Any]) -> None:
        """Replaces weights and buffers by name, all of them or (on an error) none.

        weights: names to arrays of the same dtype and shape, in host or GPU memory; the values
        are copied, after waiting for the GPU work that makes them. Weights change for all
        sessions. A mutable buffer changes in the module itself; for its sessions the value is
        the initial one from now on: of new ones, of reset(), of a buffer not used yet.
        Raises WeightsError for unknown names, ShapeError, DtypeError, ClosedError.
        """

    def manual_seed(self, seed: int) -> None:
        """Seeds the random numbers of its own calls.

        seed: 0 <= seed < 2**64. A module and its sessions have a generator each. Raises
        InputError,
        ClosedError.
        """

    def memory_stats(self) -> dict[str, int]:
        """Bytes in use, by purpose.

        weights_mapped (used in place from the file), weights_private, weights_device (on a
        GPU), state (mutable buffers of the module itself), sessions (those of all sessions),
        kv_reserved, kv_mapped and kv_used (KV caches of all sessions and the module itself:
        addresses, memory behind them, of these holding tokens), working_current and
        working_peak (on the program's device: outputs that are alive, intermediates,
        scratch, copies of inputs, CUDA graphs), cached (trim() returns it).
        """

    def method(self, name: str) -> Method:
        """The method of that name.

        Raises InputError if there is none, TargetError or NotSupported if it cannot run here,
        ClosedError.
        """

    @property
    def methods(self) -> list[str]:
        """Names of the methods, in the order of export."""

    @property
    def position(self) -> int:
        """Tokens in its KV cache.

        Raises NotSupported if the program has none that the runtime
        keeps, ClosedError.
        """

    def reset(self) -> None:
        """Gives the module's own mutable buffers their initial values and empties its KV cache.

        As Session.reset(). Raises ClosedError, OutOfMemory, DeviceError.
        """

    def rewind(self, position: int) -> None:
        """Forgets the tokens of its KV cache from position on, after the calls so far.

        The memory stays. Raises InputError if there are not as many tokens, or if a layer with
        a sliding window no longer has the tokens before it (then nothing has changed);
        NotSupported if the program has no KV cache that the runtime keeps, ClosedError.
        """

    def session(self) -> Session:
        """A new Session: mutable buffers and random numbers of its own, the same weights.

        Its buffers start with the initial values, not with the module's current ones.
        Raises ClosedError.
        """

    def state_dict(self) -> dict[str, Tensor]:
        """Weights and mutable buffers by name: copies, as cudaexec.Tensor. Raises ClosedError."""

    def stats(self) -> dict[str, typing.Any]:
        """What was loaded and how it was used.

        Files, methods, how many sessions there are (besides the module itself), and for each
        method: which code runs and why other code does not, uses_state, and over all sessions
        calls, errors (calls that raised, of these) and containers alive.
        """

    def trim(self) -> int:
        """Returns cached memory to the system; gives the bytes released.

        Gives up CUDA graphs (the next calls capture again), idle containers but one per
        method, and inputs that were kept until the GPU had read them. On a GPU it waits for
        what cudaexec's own streams of the device are doing, since memory that they free
        goes back only then. In a forked child only memory of the host is returned.
        """

@typing.final
class Session:
    """Mutable buffers and random numbers of its own over a module's weights.

    Made by Module.session(); called as the module is. Buffers are copied on first use, so
    a new session costs nothing. Any number of threads may use one: calls that use its
    buffers run one after the other, those of other sessions at the same time. It keeps
    what it needs of the module alive, and is closed when the module is.
    """

    def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        """Run the method."""

    def __enter__(self) -> Session: ...
    def __exit__(self, *args: typing.Any) -> None: ...
    def __repr__(self) -> str: ...
    @property
    def bytes_per_session(self) -> int:
        """Bytes of mutable buffers that one session owns, once calls have used all of them."""

    def close(self) -> None:
        """Frees its buffers, after calls in flight.

        Later calls raise ClosedError; outputs stay valid. Closing twice does nothing.
        """

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def fork(self) -> Session:
        """Another session that starts with copies of the buffers as they are now.

        Tokens of a KV cache are shared until one of the two writes to their page.
        The two share nothing but weights; both continue the same sequence of random numbers,
        until one is seeded. Raises ClosedError, OutOfMemory, DeviceError.
        """

    def forward(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        """Runs the method 'forward'; calling the object does the same.

        Inputs are given as the model was called, by position or by name: numpy arrays, torch
        tensors, cudaexec tensors, objects with __dlpack__, __cuda_array_interface__ or the buffer
        protocol, of exactly the exported dtypes. Their memory is never written. Outputs have the
        structure that the model returned and own their memory: torch tensors if an input was one,
        else numpy arrays if an input was one (for host memory), else cudaexec.Tensor.

        A program on a GPU runs on the CUDA stream given by the keyword stream= (see
        Method.run_on),
        else on the stream of the inputs, else on one of this thread. It copies host inputs to the
        GPU. If all tensor inputs are in host memory, so are the outputs, and the call waits for
        them;
        else they are on the GPU, nothing waits, and work on the inputs' stream follows the call.

        Raises InputError, ShapeError, DtypeError or DeviceError, naming the input, before
        anything
        runs; OutOfMemory; ClosedError.
        """

    def manual_seed(self, seed: int) -> None:
        """Seeds the random numbers of its own calls.

        seed: 0 <= seed < 2**64. A module and its sessions have a generator each. Raises
        InputError,
        ClosedError.
        """

    def memory_stats(self) -> dict[str, int]:
        """Bytes of its own, by name.

        state (mutable buffers), and of its KV cache kv_reserved (addresses),
        kv_mapped (memory behind them; pages that forks share count for each) and kv_used (of
        these, holding tokens). Raises ClosedError.
        """

    def method(self, name: str) -> Method:
        """The method of that name.

        Raises InputError if there is none, TargetError or NotSupported if it cannot run here,
        ClosedError.
        """

    @property
    def methods(self) -> list[str]:
        """Names of the methods, in the order of export."""

    @property
    def position(self) -> int:
        """Tokens in its KV cache.

        Raises NotSupported if the program has none that the runtime
        keeps, ClosedError.
        """

    def reset(self) -> None:
        """Gives the mutable buffers their initial values: the file's, or load_weights()'s since.

        A KV cache that the runtime keeps is empty then; its memory stays.
        It follows the calls so far, on a GPU in stream order, and later calls follow it. Random
        numbers go on where they are; manual_seed() starts them again.
        Raises ClosedError or OutOfMemory, then nothing has changed; DeviceError where the GPU
        refuses a copy.
        """

    def rewind(self, position: int) -> None:
        """Forgets the tokens of its KV cache from position on, after the calls so far.

        The memory stays. Raises InputError if there are not as many tokens, or if a layer with
        a sliding window no longer has the tokens before it (then nothing has changed);
        NotSupported if the program has no KV cache that the runtime keeps, ClosedError.
        """

    def state_dict(self) -> dict[str, Tensor]:
        """Weights and this session's mutable buffers by name: copies, as cudaexec.Tensor.

        Buffers that no call has used yet have their initial value. Raises ClosedError.
        """

    def stats(self) -> dict[str, typing.Any]:
        """How it was used.

        state_nbytes, bytes_per_session, and for each method: name, uses_state, calls, errors
        (calls that raised, of these), containers (copies of the compiled model of its own).
        """

@typing.final
class Tensor:
    """A tensor in memory that cudaexec owns: an output of a program, or a weight.

    It takes part in DLPack, in the buffer protocol and numpy's __array__ (host memory) and in
    __cuda_array_interface__ (GPU memory), all without a copy, and stays valid after its module
    is closed.
    """

    def __array__(
        self, dtype: typing.Any = None, copy: bool | None = None
    ) -> numpy.ndarray[typing.Any, typing.Any]: ...
    def __bool__(self) -> bool: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, typing.Any]:
        """Version 3, with the stream that the memory is ready on; for tensors on a GPU.

        Work of consumers on other streams has to be over before the tensor is dropped.
        """

    def __dlpack__(
        self,
        *,
        stream: typing.Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> typing.Any:
        """A DLPack capsule that shares the memory, or holds a copy if copy=True.

        stream: for a tensor on a GPU, the consumer's stream, on which the memory is ready: None
        or
        1 for the legacy default stream, 2 for the thread's, a handle, or -1 for no ordering.
        dl_device: (1, 0) asks for a copy in host memory, which waits for the GPU. Raises
        BufferError for other devices and where copy=False forbids the copy.
        """

    __dlpack_c_exchange_api__: typing.ClassVar[typing.Any]

    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __float__(self) -> float: ...
    def __int__(self) -> int: ...
    def __len__(self) -> int: ...
    def __repr__(self) -> str: ...
    @property
    def device(self) -> str:
        """'cpu' or 'cuda:<index>'."""

    @property
    def dtype(self) -> str:
        """Element type by name, such as 'float32' or 'bfloat16'."""

    def item(self) -> bool | int | float:
        """The one element as a Python bool, int or float."""

    @property
    def nbytes(self) -> int:
        """Bytes of the elements if they were packed."""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""

    def numpy(self) -> numpy.ndarray[typing.Any, typing.Any]:
        """A numpy array over the same memory. bfloat16 needs the package ml_dtypes.

        Raises NotSupported for bfloat16 without ml_dtypes, DeviceError if not on the CPU: use
        to_host() first.
        """

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, in elements."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Distances between neighbours along each dimension, in elements (not bytes)."""

    def to_host(self) -> Tensor:
        """The tensor in host memory: this object itself if it is there, else a copy.

        Waits for the GPU work that makes it. Raises OutOfMemory.
        """

    def tolist(self) -> typing.Any:
        """Elements as nested lists of bool, int or float."""

__version__: str

def _error_codes() -> dict[str, typing.Any]:
    """Class names with their numbers, as the core has them."""

_format: typing.Any

_ops: typing.Any

_ops_misc: typing.Any

def _set_package_folders(folders: collections.abc.Sequence[str]) -> None:
    """Where NVIDIA's optional libraries may be installed as Python packages: sys.path."""

_testing: typing.Any

def exported_symbols(path: str) -> list[str]:
    """Names that the shared library at `path` defines for others.

    Raises FileError if it cannot be read, FormatError if it is not an ELF64 library.
    """

def inspect_elf(image: bytes, name: str = "<library>") -> dict[str, typing.Any]:
    """What an ELF64 x86-64 shared object needs, without opening it.

    Returns a dict: needed (DT_NEEDED names), unknown_needed (of these, those that programs may
    not use), undefined (symbols it wants), missing (of these, those that this process cannot
    supply, as 'name' or 'name@version'), unique (STB_GNU_UNIQUE definitions), isa (the marked
    x86-64 level or ''), min_glibc, min_glibcxx ('2.34', '3.4.30' or '').

    Raises FormatError for anything else or a damaged image.
    """

def log_level() -> str:
    """The current level."""

def set_log_level(level: str) -> None:
    """Sets what is written to stderr: 'debug', 'info', 'warning', 'error' or 'off'.

    The default is the environment variable CUDAEXEC_LOG, read once; 'off' if it is unset or
    has another value. Raises InputError for another name.
    """
