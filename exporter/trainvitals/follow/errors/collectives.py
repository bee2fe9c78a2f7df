"""Errors of collectives and of the network below them.

Wordings of PyTorch's ``ProcessGroupNCCL.cpp`` (1.x: ``WorkNCCL(SeqNum=1, OpType=...)`` behind ``[Rank 1]``; 2.x: the
same behind ``[rank1]:[E...]`` and ``[PG ...]``), ``TCPStore.cpp`` and gloo, of NCCL's ``NCCL WARN`` lines, of HCCL
(codes like ``EI0002``).
"""

from __future__ import annotations

from trainvitals.follow.errors.base import Level, causes

CAUSES = causes(
    (
        "collective_mismatch",
        "parameter",
        Level.ROOT,
        ("ismatch", "EI0005", "Message truncated", "Duplicate GPU"),
        (
            r"Detected mismatch between collectives|[Mm]ismatch between collective|NCCL WARN .{0,80}(?:[Mm]ismatch"
            r"|Message truncated)|EI0005[:)]|Duplicate GPU detected"
        ),
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 2 is running collective: ALLREDUCE",
        "Ranks called different collectives, or the same with different sizes.",
        "Look for code that only some ranks run, or a last batch that only some have.",
    ),
    (
        "collective_missing_ranks",
        "resource",
        Level.BLAMED,
        ("collective #", "monitoredBarrier", "unconnected ranks", "EI0002"),
        (
            r"\[(?P<ranks>[\d, -]{1,200})\] (?:finished collective #\d{1,19}, but didn't join|joined but didn't finish)"
            r"|[Rr]anks? (?P<absent>[\d, ]{1,200}) failed to pass monitoredBarrier"
            r"|List of unconnected ranks: \W{0,4}(?P<alone>[\d, ]{1,200})"
            r"|EI0002[:)].{0,600}?remote rank: ?\[(?P<remote>[\d, ]{1,200})\]"
        ),
        "     [3] finished collective #41, but didn't join collective #42 (count from 1)",
        "The ranks that others wait for are named.",
        "Look at these ranks first: their log, their node, their device, what they were doing.",
    ),
    (
        "collective_timeout",
        "resource",
        Level.SYMPTOM,
        ("imeout", "imed out", "EI0002", "watchdog got stuck"),
        (
            r"(?:\[Rank (?P<rank>\d{1,6})\] )?Watchdog caught collective operation timeout"
            r"(?:.{0,60}OpType=(?P<collective>\w{1,40}))?(?:.{0,120}Timeout\(ms\)=(?P<timeout_ms>\d{1,12}))?"
            r"|watchdog got stuck for|EI0002[:)]|notify wait timeout|\[TaskExecStage\]\[Timeout\]"
            r"|Process group work (?P<operation>\w{1,40}), seq_num \d{1,19} dispatch timeout\.(?: device"
            r" (?P<device>\d{1,3}))?"
            r"|Timed out waiting (?P<waited_ms>\d{1,12})ms for (?:recv|send) operation"
        ),
        (
            "[rank2]:[E611 09:08:07.123456789 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective "
            "operation timeout: "
            "WorkNCCL(SeqNum=411, OpType=ALLREDUCE, NumelIn=77, NumelOut=77, Timeout(ms)=600000) ran for 600021 "
            "milliseconds"
        ),
        "A rank waited in a collective until its limit: another one did not come.",
        "Find the rank that does not report this; look at its log, its data loader and its device.",
    ),
    (
        "collective_link_error",
        "resource",
        Level.SYMPTOM,
        (
            "Got completion",
            "got completion",
            "LINK_ERROR",
            "LINK ERROR",
            "cqe err",
            "EI0013",
            "ibv_",
            "REMOTE ERROR",
            "async event",
        ),
        (
            r"[Gg]ot completion (?:from peer (?P<peer>[\w.:<>-]{1,60}) )?.{0,20}error (?P<code>\d{1,3})|LINK_ERROR_INFO"
            r"|HCCS LINK ERROR|cqe err status\[(?P<status>\d{1,4})\](?:.{0,80}ip:\[(?P<address>[\w.:]{1,60})\])?"
            r"|EI0013[:)]"
            r"|SUSPECT REMOTE ERROR|NCCL WARN .{0,60}ibv_(?:poll_cq|modify_qp|post_send|post_recv"
            r"|reg_mr\w{0,10}) failed"
        ),
        (
            "node-7:5201:5388 [3] transport/net_ib.cc:1301 NCCL WARN NET/IB : Got completion from peer 10.9.8.7<40112> "
            "with error 12, opcode 0, len 0, vendor err 129 (Recv)"
        ),
        "A transfer over the network between two nodes failed; 12 is a peer that no longer answers.",
        "Look first whether the peer's process died; else check link errors, cables and switch between the two.",
    ),
    (
        "network_connect_failed",
        "resource",
        Level.SYMPTOM,
        ("onnect", "EI0006", "EI0015", "no route"),
        (
            r"NCCL WARN .{0,80}[Cc]onnect to (?P<peer>[\w.:<>-]{1,80}) .{0,40}failed(?!.{0,80}retry)"
            r"|NCCL WARN .{0,80}[Cc]onnect.{0,60}(?:refused|timed out|[Nn]o route)(?!.{0,80}retry)|EI0006[:)]"
            r"|EI0015[:)]"
            r"|gloo.{0,200}connect.{0,120}(?:failed|timed out|refused)|connectFullMesh failed"
        ),
        "node-7:5201:5388 [3] misc/socket.cc:453 NCCL WARN Connect to 10.9.8.7<40112> failed : Connection refused",
        "A rank could not connect to another one.",
        "Look whether the other rank runs; check NCCL_SOCKET_IFNAME, firewall and name resolution between the nodes.",
    ),
    (
        "port_in_use",
        "parameter",
        Level.ROOT,
        ("ddress already in use", "EADDRINUSE", "EJ0003", "EJ0001", "EI0020", "already been bound", "already running"),
        (
            r"(?:Error|error|errno|failed).{0,160}(?:EADDRINUSE|[Aa]ddress already in use)|EJ000[13][:)]|EI0020[:)]"
            r"|last training process is running"
        ),
        (
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
            "address. EADDRINUSE"
        ),
        "The port is taken, often by a process of the run before.",
        "End the processes that are left on the node, or choose another MASTER_PORT.",
    ),
    (
        "rendezvous_failed",
        "resource",
        Level.SYMPTOM,
        ("endezvous", "client socket", "TCPStore", "store->get", "StoreTimeout", "Wait timeout after"),
        (
            r"Rendezvous(?:Timeout|Connection|Closed)Error|client socket has timed out"
            r"(?: after (?P<seconds>\d{1,7})s)?"
            r"|store->get.{0,80}(?:Timeout|timeout|error)|(?:DistStoreError|TCPStore).{0,120}(?:[Tt]imed? ?out"
            r"|timeout after)"
        ),
        (
            "torch.distributed.DistNetworkError: The client socket has timed out after 900s while trying to "
            "connect to (node-1, 29511)."
        ),
        "The ranks did not find together within the limit.",
        "See which node never started or started late; check that all can reach MASTER_ADDR and its port.",
    ),
    (
        "peer_lost",
        "resource",
        Level.CASCADE,
        ("ncclRemoteError", "remote peer", "remote process exited", "communicator was aborted", "Connection closed by"),
        (
            r"ncclRemoteError|[Cc]onnection closed by (?:remote )?peer"
            r"|remote process exited or there was a network error"
            r"|NCCL communicator was aborted(?: on rank (?P<rank>\d{1,6}))?"
        ),
        (
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2011, ncclRemoteError: A call "
            "failed possibly "
            "due to a network error or a remote process exiting prematurely."
        ),
        "Another process of the collective is gone.",
        "Look for the rank that ended first and for its error.",
    ),
    (
        "nccl_failed",
        "resource",
        Level.SYMPTOM,
        ("NCCL", "nccl", "HCCL", "hccl", "DistBackendError"),
        (
            r"nccl(?:System|Internal|UnhandledCuda|InvalidUsage|InvalidArgument)Error|NCCL error in: "
            r"|unhandled (?:system|cuda) error"
            r"|NCCL WARN .{0,60}(?:socket state|corrupted|Cuda failure(?!.{0,60}peer access)|Timeout waiting)"
            r"|hcclComm .{0,40} error"
            r"|^(?:\w{1,40}\.){0,6}DistBackendError: "
        ),
        (
            "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled system "
            "error, NCCL version 2.21.5"
        ),
        "A call of the collective library failed.",
        "Run again with NCCL_DEBUG=WARN and read the lines before the error; check shared memory, driver and network.",
    ),
    (
        "nccl_warning",
        "resource",
        Level.NOTICE,
        ("NCCL WARN",),
        r"NCCL WARN (?P<message>.{0,200})",
        "node-7:5201:5388 [3] ibvwrap.c:94 NCCL WARN Call to ibv_open_device failed",
        "NCCL warns of something that it mostly can do without.",
        "Nothing while the run goes on; read it when collectives are slow.",
    ),
    (
        "connection_lost",
        "resource",
        Level.NOTICE,
        ("Broken pipe", "Connection reset", "recvValue failed", "sendBytes failed", "likely closed", "should dump"),
        (
            r"Broken pipe|Connection reset by peer|(?:recvValue|sendBytes|recvBytes) failed"
            r"|Connection was likely closed|should dump"
        ),
        "[W611 09:08:09.123456789 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=71): Broken pipe",
        "The other end of a connection is gone.",
        "Look for the process that ended first.",
    ),
)
