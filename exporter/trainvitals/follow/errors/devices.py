"""Errors of accelerators and of the libraries that drive them.

The wordings are those of PyTorch's ``c10/cuda/CUDACachingAllocator.cpp`` and ``CUDAException.cpp``, of
``cudaGetErrorString``, of NVIDIA's kernel module (``NVRM: Xid``), of torch_npu and CANN (codes like ``EL0004``), of
TensorFlow and Paddle.
"""

from __future__ import annotations

from trainvitals.follow.errors.base import Level, causes

_VENDORS = r"(?:CUDA|HIP|NPU|XPU|MUSA|MLU|GCU|DCU|MPS backend)"
#: XIDs after which hardware or driver must be looked at, and those that a program causes (NVIDIA's catalogue).
_XID_HARDWARE = r"(?:48|54|6[1-4]|7[1-9]|81|9[2-5]|1[1-9]\d)"
_XID_PROGRAM = r"(?:13|31|32|6[89])"
_XID = r"NVRM: Xid \((?P<place>[^)]{1,60})\): ?(?P<code>"

CAUSES = causes(
    (
        "device_memory_retried",
        "resource",
        Level.NOTICE,
        ("memory", "Memory", "OOM"),
        (
            r"^(?!.{0,200}NCCL WARN)(?=.{0,2000}(?:out of (?:memory|resource)|OOM|OutOfMemory))"
            r"(?:.{0,2000}(?:[Rr]etry|[Ss]kipping|[Tt]rying|[Aa]utotun|select_algorithm\.py|triton_heuristics\.py"
            r"|out of resource|Ran out of memory with exception)|.{0,40}\[?W\d{3,4} |.{0,80}\bWARN)"
        ),
        (
            "E0511 07:12:44.150000 881 torch/_inductor/select_algorithm.py:99] OutOfMemoryError: out of resource: "
            "triton_mm"
        ),
        "Memory did not suffice for something that was tried, and the program went on without it.",
        "Nothing; a smaller batch keeps the allocator from trying again and again.",
    ),
    (
        "device_out_of_memory",
        "resource",
        Level.ROOT,
        ("memory", "OOM when", "EL0004"),
        (
            rf"(?:{_VENDORS} out of memory|OutOfMemoryError: .{{0,80}}out of memory|(?:Out of memory error"
            rf"|[Cc]annot allocate"
            r" .{1,40} memory) on (?:GPU|NPU|XPU)|RESOURCE_EXHAUSTED: (?:Out of memory|OOM)|OOM when allocating tensor"
            r"|EL0004: .{0,80}allocate memory|memory isn't enough and alloc failed)"
            r"(?:.{0,200}?[Tt]ried to allocate (?P<wanted>[\d.]{1,20} [KMGT]?i?B))?(?:.{0,80}?[GNX]PU"
            r" (?P<device>\d{1,3})\b)?"
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.75 GiB. GPU 5 has a total capacity of "
            "79.3 GiB"
        ),
        "A tensor did not fit into the memory of the device.",
        "Lower the micro batch or the sequence length; then checkpoint activations or shard more.",
    ),
    (
        "device_memory_taken",
        "resource",
        Level.ROOT,
        ("out of memory", "OUT_OF_MEMORY"),
        (
            r"(?:CUDA|HIP|CUDA driver) error(?:\(2\))?[:,] out of memory|CUDA_ERROR_OUT_OF_MEMORY"
            r"|Cuda failure .{0,8}'out of memory'"
        ),
        "RuntimeError: CUDA error: out of memory",
        "The driver itself had no memory left on the device, often before the first step.",
        (
            "Look for processes left on the device (nvidia-smi); on one node only, suspect the device. Else lower "
            "the batch."
        ),
    ),
    (
        "device_memory_error",
        "resource",
        Level.ROOT,
        ("ECC", "UCE ERROR", "MEM ERROR"),
        (r"uncorrectable ECC error|ECCUncorrectable|ECC_UNCORRECTABLE|HBM MULTI BIT ECC|\bUCE ERROR|SUSPECT MEM ERROR"),
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "The memory of the device returned bits that could not be corrected.",
        "Drain the node, reset the device, run the vendor's diagnostics; resume from the last checkpoint elsewhere.",
    ),
    (
        "xid_hardware",
        "resource",
        Level.ROOT,
        ("Xid (",),
        rf"{_XID}{_XID_HARDWARE})\b",
        "NVRM: Xid (PCI:0000:5e:00): 79, pid=4171, GPU has fallen off the bus.",
        "The NVIDIA driver reports an error of the device or of its links.",
        "Look the number up in docs/devices.md; drain the node and reset the device before it is used again.",
    ),
    (
        "xid_program",
        "parameter",
        Level.ROOT,
        ("Xid (",),
        rf"{_XID}{_XID_PROGRAM})\b",
        "NVRM: Xid (PCI:0000:5e:00): 31, pid=4171, name=python, Ch 00000010, MMU Fault: ENGINE GRAPHICS",
        "The NVIDIA driver stopped a program that used memory wrongly.",
        "Run again with CUDA_LAUNCH_BLOCKING=1; if it stays on one device, suspect the device.",
    ),
    (
        "xid_other",
        "resource",
        Level.CASCADE,
        ("Xid (",),
        rf"{_XID}\d{{1,5}})\b",
        "NVRM: Xid (PCI:0000:5e:00): 45, pid=4171, name=python, Ch 00000008",
        "The NVIDIA driver reports an error, mostly as it cleans up after another one.",
        "Look for the error before it.",
    ),
    (
        "device_lost",
        "resource",
        Level.ROOT,
        ("fallen off the bus", "is lost", "devicelost", "DEVICE_LOST", "lost heartbeat"),
        (
            r"fallen off the bus|GPU is lost|CUDA error: device (?:is )?lost|DEVICE_LOST"
            r"|device lost heartbeat|lost heartbeat.{0,40}device"
        ),
        "NVRM: GPU at PCI:0000:5e:00: GPU has fallen off the bus.",
        "The device no longer answers.",
        "Drain and reboot the node; check power, seating and temperature when it comes again.",
    ),
    (
        "nvswitch_error",
        "resource",
        Level.BLAMED,
        ("SXid", "NVSwitch"),
        r"SXid \((?P<place>[^)]{1,60})\): ?(?P<code>\d{1,6})|NVSwitch (?:fatal|non-fatal) error (?P<number>\d{1,6})",
        "nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 36 LTSSM Fault Up",
        "An NVSwitch reports an error.",
        "Fatal: stop the work and reset GPUs and switches together, or reboot the node.",
    ),
    (
        "device_memory_unmapped",
        "resource",
        Level.CASCADE,
        ("nvidia-peermem",),
        r"nvidia-peermem .{0,120}ERROR",
        "nvidia-peermem nv_get_p2p_free_callback:131 ERROR detected invalid context, skipping further processing",
        "Memory of a device went away under a network card that used it, mostly as its process ended.",
        "Look for what ended the process; otherwise update driver and nvidia-peermem together.",
    ),
    (
        "device_assert",
        "data",
        Level.ROOT,
        ("device-side assert", "Assertion `", "DEVICE_ASSERT"),
        r"device-side assert triggered|Assertion `.{1,120}` failed|CUDA_ERROR_ASSERT",
        "Indexing.cu:1236: block: [61,0,0], thread: [32,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        "A kernel found an index out of range: mostly a token or label that the model does not know.",
        "Check the largest token id and label against the size of the vocabulary and of the classes.",
    ),
    (
        "device_illegal_access",
        "parameter",
        Level.ROOT,
        ("illegal", "misaligned address", "launch failure", "ILLEGAL", "Memory access fault"),
        (
            r"illegal memory access|CUDA error: misaligned address|unspecified launch failure|CUDA error: an illegal"
            r"|CUDA_ERROR_(?:ILLEGAL|LAUNCH_FAILED)|cudaErrorIllegal|Memory access fault by GPU"
        ),
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "A kernel used memory that is not its own: an error of a kernel, now and then of the device.",
        "Run again with CUDA_LAUNCH_BLOCKING=1 to find the kernel; look for Xids; try without custom kernels.",
    ),
    (
        "no_such_device",
        "resource",
        Level.ROOT,
        ("CUDA", "NVIDIA driver"),
        (
            r"^(?!.{0,200}Warning: )(?:.{0,200}(?:CUDA error: (?:invalid device ordinal|no CUDA-capable device)"
            r"|No CUDA GPUs are available|Found no NVIDIA driver|not compiled with CUDA enabled|busy or unavailable"
            r"|CUDA error: system not yet initialized)|\w{0,40}Error: .{0,40}CUDA is (?:required|not available))"
        ),
        "RuntimeError: CUDA error: invalid device ordinal",
        "The program wants a device that is not there or not free.",
        "Compare processes per node with devices of the node and CUDA_VISIBLE_DEVICES; see `trainvitals doctor`.",
    ),
    (
        "software_mismatch",
        "resource",
        Level.ROOT,
        ("kernel image", "driver version", "is too old", "undefined symbol", "GLIBC", "forward compatibility"),
        (
            r"no kernel image is available|driver version is insufficient|driver on your system is too old"
            r"|: undefined symbol: |version `GLIBC|forward compatibility was attempted"
        ),
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "Driver, libraries and program do not belong together.",
        "Install the build for this driver and device; compare with a node where it runs.",
    ),
    (
        "device_library_failed",
        "resource",
        Level.ROOT,
        ("CUBLAS_STATUS_", "CUDNN_STATUS_", "CUFFT_", "CUSOLVER_STATUS", "HIPBLAS_STATUS_", "MIOPEN"),
        (
            r"(?:CUDA error|cuDNN error|cuFFT error|cusolver error|MIOpen Error|[Ee]rror).{0,60}"
            r"(?P<code>(?:CUBLAS|CUDNN|CUSOLVER|HIPBLAS|MIOPEN)_STATUS_(?!SUCCESS)\w{1,40}|CUFFT_\w{1,40})"
        ),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, "
            "opb, m, n, k )`"
        ),
        "A library of the device failed: short of memory, or in the wake of an earlier error of a kernel.",
        "Leave more memory free; check token ids and shapes; run again with CUDA_LAUNCH_BLOCKING=1.",
    ),
    (
        "cuda_error",
        "resource",
        Level.ROOT,
        ("CUDA error", "HIP error", "CUDA driver error"),
        r"(?:CUDA|HIP|CUDA driver) error(?:\((?P<code>\d{1,5})\),|:) \w.{2,120}",
        "RuntimeError: CUDA error: unknown error",
        "The driver of the device reports an error.",
        "Look for Xids on the node; run again with CUDA_LAUNCH_BLOCKING=1; suspect the device when it stays there.",
    ),
    (
        "npu_error",
        "resource",
        Level.SYMPTOM,
        ("MemcpyAsync", "error code is 507", "aicore", "aivec", "AICORE", "ector core"),
        (
            r"MemcpyAsync failed|error code is (?P<code>507\d{3})|ai(?:core|vec) (?:error )?(?:exception|timeout)"
            r"|ector core exec"
        ),
        "RuntimeError: ACL stream synchronize failed, error code is 507015",
        "A task on an Ascend device failed.",
        "Read the plog of that device at this time; look for errors of other ranks before it.",
    ),
    (
        "npu_task_failed",
        "resource",
        Level.CASCADE,
        ("Task run failed", "Inner Error", "ERR0", "function error", "HCCL error", "9999"),
        (
            r"Task run failed(?:.{0,60}device_id=(?P<device>\d{1,3}))?|\b(?P<code>E[A-Z39]9999)\b"
            r"|\b(?P<status>ERR0\d{4}) "
            r"|(?:NPU|HCCL|OPS) function error: |HCCL error in"
        ),
        (
            "[ERROR] RUNTIME(4171,python):2026-03-02-10:11:12.123.456 ProcLogicCqReport:Task run failed, "
            "device_id=6, stream_id=2"
        ),
        "A call or a task on an Ascend device failed; codes behind it or other ranks tell why.",
        "Read the codes of the same message (EI, EJ, EL), then the plog of the other ranks.",
    ),
)
