"""Errors of data that cannot be read, with the names of files where the message has them.

Wordings of Pillow, the standard library, webdataset, pyarrow, torch, safetensors, sentencepiece, tokenizers, NumPy.
"""

from __future__ import annotations

from trainvitals.follow.errors.base import Level, causes

_NAME = r"^(?:[\w.]{1,80}\.)?"
_QUOTED = r"(?:.{0,300}?'(?P<file>[^'\n]{0,400}[./][^'\n]{1,400})')?"

CAUSES = causes(
    (
        "image_unreadable",
        "data",
        Level.ROOT,
        (
            "UnidentifiedImageError",
            "mage file is truncated",
            "runcated File Read",
            "broken PNG",
            "broken data stream",
            "DecompressionBomb",
        ),
        (
            rf"{_NAME}UnidentifiedImageError: {_QUOTED}|{_NAME}\w{{1,40}}Error: (?:[Ii]mage file is truncated"
            r"|.{0,40}[Tt]runcated File Read|broken (?:PNG|data stream))|DecompressionBombError"
        ),
        "PIL.UnidentifiedImageError: cannot identify image file '/data/img/000431.jpg'",
        "An image is damaged, empty or no image.",
        "Check the file (size, `file`, a viewer); replace or leave it out, and look how many others are like it.",
    ),
    (
        "archive_unreadable",
        "data",
        Level.ROOT,
        (
            "ReadError",
            "BadZipFile",
            "BadGzipFile",
            "zlib.error",
            "LZMAError",
            "ZstdError",
            "end-of-stream",
            "while decompressing",
            "Invalid data stream",
        ),
        (
            rf"{_NAME}(?:ReadError: |BadZipFile: |BadGzipFile: |LZMAError: |ZstdError: ){_QUOTED}"
            rf"|^zlib\.error: Error (?P<code>-?\d{{1,3}})"
            r"|ended before the end-of-stream marker|^OSError: Invalid data stream"
        ),
        "tarfile.ReadError: unexpected end of data (\"unexpected end of data\", '/data/shards/train-000219.tar')",
        "An archive is cut short or damaged.",
        (
            "Compare its size and checksum with the source, copy it again; look whether the disk was full when it "
            "was written."
        ),
    ),
    (
        "table_unreadable",
        "data",
        Level.ROOT,
        ("Arrow", "arquet", "DatasetGeneration", "h5py", "open file (", "HDF5"),
        (
            rf"{_NAME}Arrow(?:Invalid|IOError|TypeError|SerializationError): {_QUOTED}"
            rf"|[Pp]arquet magic bytes not found|{_NAME}DatasetGeneration\w{{0,20}}Error"
            r"|OSError: Unable to (?:synchronously )?open file \("
        ),
        (
            "pyarrow.lib.ArrowInvalid: Could not open Parquet input source '/data/part-00017.parquet': Parquet "
            "magic bytes not found"
        ),
        "A table of data (Parquet, Arrow, HDF5) cannot be read.",
        "Write or download the file again; look whether others of the same batch are damaged too.",
    ),
    (
        "text_undecodable",
        "data",
        Level.ROOT,
        ("UnicodeDecodeError", "JSONDecodeError", "csv.Error", "line 1 column", "at line "),
        (
            rf"{_NAME}(?:UnicodeDecodeError|JSONDecodeError|csv\.Error): {_QUOTED}"
            r"|^Exception: .{0,200} at line (?P<line>\d{1,12}) column \d{1,12}"
        ),
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "A text file is not what its reader expects: another encoding, half a line, not JSON.",
        "Find the file in the traceback; look at the byte or line that the message names.",
    ),
    (
        "checkpoint_unreadable",
        "data",
        Level.ROOT,
        (
            "PytorchStreamReader",
            "SafetensorError",
            "UnpicklingError",
            "nvalid magic number",
            "EOFError: Ran out of input",
            "central directory",
        ),
        (
            rf"PytorchStreamReader failed|{_NAME}SafetensorError: |{_NAME}UnpicklingError: "
            rf"|[Ii]nvalid magic number; corrupt file\?"
            r"|EOFError: Ran out of input"
        ),
        "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
        "A file of weights or state is damaged, cut short or only a pointer to the real one.",
        (
            "Go back to the checkpoint before it; look for a full disk or a stop while it was written; check `git "
            "lfs pull`."
        ),
    ),
    (
        "tokenizer_unreadable",
        "data",
        Level.ROOT,
        ("entencepiece", "ModelProto", "load tokenizer", "instantiate the backend tokenizer"),
        (
            r"sentencepiece_processor\.cc\(\d{1,6}\)|could not parse ModelProto|Can't load tokenizer for"
            r"|instantiate the backend tokenizer"
        ),
        "RuntimeError: Internal: could not parse ModelProto from /models/m7/tokenizer.model",
        "The tokenizer cannot be loaded.",
        "Check path and size of its files; a download that stopped half-way or a pointer of git lfs is common.",
    ),
    (
        "index_damaged",
        "data",
        Level.ROOT,
        (
            "mmap length",
            "magic number mismatch",
            "cannot mmap an empty",
            "ndex file doesn't match",
            "hort read",
            "hard size",
        ),
        (
            r"Error: .{0,80}(?:mmap length is greater than file size|cannot mmap an empty file"
            r"|magic number mismatch in the data)"
            r"|Index file doesn't match expected format"
        ),
        "ValueError: mmap length is greater than file size",
        "An index or a binary data file is shorter than it says, or of another kind.",
        "Build the index again, on one rank first; compare sizes with the source.",
    ),
    (
        "file_missing",
        "data",
        Level.SYMPTOM,
        ("FileNotFoundError",),
        rf"{_NAME}FileNotFoundError: {_QUOTED}",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/part-00017.bin'",
        "A file is not there.",
        "Check the path and the mount on that node; see whether something that writes the file failed before.",
    ),
)
