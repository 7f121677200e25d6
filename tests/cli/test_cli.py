#!/usr/bin/env python3
"""The heed program as its users meet it: what it prints, what it writes, how it fails. Python's standard library only.

    tests/cli/test_cli.py HEED MODELS_DIR [--update]      --update writes the golden help texts anew
"""
import json
import os
import pty
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent / "golden"
MANUAL = Path(__file__).resolve().parents[2] / "docs" / "man"
COMMANDS = ["run", "explain", "check", "kernels"]
HEED = MODELS = None
UPDATE = False


# ------------------------------------------------------------------------------------------------ files, by hand

def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while n > 0x7f:
        out += bytes([n & 0x7f | 0x80])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    """One protobuf field: an int as a varint, anything else as bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


FLOAT, INT64 = 1, 7


def tensor(name, kind, dims, raw=None, external=None):
    out = b"".join(field(1, d) for d in dims) + field(2, kind) + field(8, name)
    if external:
        out += field(13, field(1, "location") + field(2, external)) + field(14, 1)
    return out + (b"" if raw is None else field(9, raw))


def value(name, kind, dims):
    shape = b"".join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


def node(op, inputs, outputs):
    return b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(3, op + "_0") + field(4, op)


def model(nodes, initializers, inputs, outputs):
    graph = b"".join(field(1, n) for n in nodes) + field(2, "g") + b"".join(field(5, t) for t in initializers)
    graph += b"".join(field(11, v) for v in inputs) + b"".join(field(12, v) for v in outputs)
    return field(1, 8) + field(7, graph) + field(8, field(2, 17))


WEIGHTS = struct.pack("<3f", 10, 20, 30)


def small_model(op="Add", **weights):
    """sum = x + [10, 20, 30] with x f32 [batch, 3]; twice = n + n with n i64 [2]."""
    return model([node(op, ["x", "w"], ["sum"]), node("Add", ["n", "n"], ["twice"])],
                 [tensor("w", FLOAT, [3], **(weights or {"raw": WEIGHTS}))],
                 [value("x", FLOAT, ["batch", 3]), value("n", INT64, [2])],
                 [value("sum", FLOAT, ["batch", 3]), value("twice", INT64, [2])])


def npy(kind, shape, values):
    code = {"<f4": "f", "<f8": "d", "<i8": "q", "<i4": "i"}[kind]
    head = repr({"descr": kind, "fortran_order": False, "shape": tuple(shape)}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + struct.pack(f"<{len(values)}{code}", *values)


def read_npy(data):
    """Type, shape and values of an .npy file."""
    size = struct.unpack("<H", data[8:10])[0]
    head = eval(data[10:10 + size], {"__builtins__": {}})
    code = {"<f4": "f", "<i8": "q"}[head["descr"]]
    values = struct.unpack(f"<{(len(data) - 10 - size) // struct.calcsize(code)}{code}", data[10 + size:])
    return head["descr"], head["shape"], list(values)


X = npy("<f4", (2, 3), [0, 1, 2, 3, 4, 5])
N = npy("<i8", (2,), [7, -8])
SUM = npy("<f4", (2, 3), [10, 21, 32, 13, 24, 35])
TWICE = npy("<i8", (2,), [14, -16])


class Case(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.write("m.onnx", small_model())
        self.npz("io.npz", in_x=X, in_n=N, out_0=SUM, out_1=TWICE)

    def tearDown(self):
        self.temporary.cleanup()

    def write(self, name, data):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return name

    def npz(self, name, compression=zipfile.ZIP_STORED, **arrays):
        with zipfile.ZipFile(self.folder / name, "w", compression) as archive:
            for key, data in arrays.items():
                archive.writestr(key + ".npy", data)
        return name

    def heed(self, *arguments, **options):
        return subprocess.run([HEED, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, timeout=120, **options)

    def succeeds(self, *arguments):
        done = self.heed(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def json(self, *arguments, code=0):
        done = self.heed(*arguments, "--json")
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def fails(self, *arguments, saying=(), stdout=""):
        """One line on the error stream, exit code 1, and no file that was not there."""
        before = sorted(self.folder.rglob("*"))
        done = self.heed(*arguments)
        self.assertEqual(done.returncode, 1, (arguments, done))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("heed: ") and done.stderr.endswith("\n"), done.stderr)
        for words in saying:
            self.assertIn(words, done.stderr)
        if stdout is not None:
            self.assertEqual(done.stdout, stdout)
        self.assertEqual(sorted(self.folder.rglob("*")), before)
        return done

    def misused(self, *arguments, saying):
        done = self.heed(*arguments)
        command = arguments[0] if arguments and arguments[0] in COMMANDS else None
        name = f"heed {command}" if command else "heed"
        self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
        self.assertEqual(done.stderr, f"{name}: {saying}\nTry '{name} --help' for more information.\n")


# ---------------------------------------------------------------------------------------------------------- tests

class Usage(Case):
    def test_help(self):
        for command in ["", *COMMANDS]:
            text = self.succeeds(*filter(None, [command]), "--help")
            path = GOLDEN / f"{command or 'heed'}.txt"
            if UPDATE:
                path.write_text(text)
            self.assertEqual(text, path.read_text(), path)
            self.assertEqual(text, self.succeeds("help", *filter(None, [command])))
            self.assertTrue(all(len(line) <= 100 for line in text.splitlines()))

    def test_manual(self):
        for command in COMMANDS:
            page = (MANUAL / f"heed-{command}.1").read_text()
            for option in re.findall(r"^ +--([a-z-]+)", self.succeeds(command, "--help"), re.MULTILINE):
                if option != "help":
                    self.assertIn(f"Fl -{option}", page)

    @unittest.skipUnless(shutil.which("groff"), "no groff")
    def test_manual_is_clean(self):
        for page in MANUAL.glob("*.1"):
            done = subprocess.run(["groff", "-mandoc", "-Tutf8", "-ww", "-z", page], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)

    def test_version(self):
        self.assertRegex(self.succeeds("--version"), r"^heed \d+\.\d+\.\d+\n$")

    def test_wrong_usage(self):
        self.misused(saying="missing command")
        self.misused("walk", saying="unknown command 'walk'")
        self.misused("help", "walk", saying="unknown command 'walk'")
        self.misused("--fast", saying="unrecognized option '--fast'")
        for command in COMMANDS:
            self.misused(command, "--fast", saying="unrecognized option '--fast'")
            self.misused(command, "--json=yes", saying="option '--json' doesn't allow an argument")
        for command in ["run", "explain", "check"]:
            options = ["--io", "io.npz"] if command == "check" else []
            self.misused(command, *options, saying="missing MODEL")
            self.misused(command, "m.onnx", "n.onnx", *options, saying="extra operand 'n.onnx'")
        self.misused("kernels", "m.onnx", saying="extra operand 'm.onnx'")
        self.misused("run", "m.onnx", "--inputs", saying="option '--inputs' requires an argument")
        self.misused("run", "m.onnx", "--threads", "0", saying="option '--threads': '0' is not a whole number from 1 to 4096")
        self.misused("run", "m.onnx", "--threads=2x", saying="option '--threads': '2x' is not a whole number from 1 to 4096")
        self.misused("run", "m.onnx", "--seed=-1", saying="option '--seed': '-1' is not a whole number of 0 or more")
        self.misused("run", "m.onnx", "--input", "x.npy", saying="option '--input': 'x.npy' is not of the form NAME=F.npy")
        self.misused("run", "m.onnx", "--dim", "batch=few", saying="option '--dim': 'few' is not a whole number of 0 or more")
        self.misused("check", "m.onnx", saying="expected one of --io, --data and --all")
        self.misused("check", "m.onnx", "--io=a", "--data=b", saying="expected one of --io, --data and --all")
        self.misused("check", "m.onnx", "--all=b", saying="extra operand 'm.onnx': --all takes the models from its folder")
        self.misused("check", "m.onnx", "--io=a", "--atol=nan", saying="option '--atol': 'nan' is not a number of 0 or more")
        self.misused("kernels", "--dtype=f64", saying="option '--dtype': 'f64' is not one of f32, f16, bf16")
        self.misused("kernels", "--heads=8/", saying="option '--heads': '' is not a whole number of 0 or more")
        self.misused("kernels", "--mask=soft", saying="option '--mask': 'soft' is not one of none, bool, f32, q")
        self.misused("kernels", "--causal=up", saying="option '--causal': 'up' is not one of top-left, bottom-right")

    def test_order_of_options(self):
        first = self.json("check", "m.onnx", "--io", "io.npz")
        self.assertEqual(first, self.json("check", "--io=io.npz", "m.onnx"))
        os.rename(self.folder / "m.onnx", self.folder / "-m.onnx")
        done = self.heed("check", "--io=io.npz", "--json", "--", "-m.onnx")
        self.assertEqual((done.returncode, json.loads(done.stdout)["ok"]), (0, True))

    def test_full_disk(self):
        for arguments in [["--help"], ["kernels"], ["run", "m.onnx", "--random"]]:
            with open("/dev/full", "w") as full:
                done = subprocess.run([HEED, *arguments], cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual((done.returncode, done.stderr), (1, "heed: write error: No space left on device\n"))

    def terminal(self, **environment):
        """What `heed kernels` writes to a terminal."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen([HEED, "kernels"], stdout=theirs, env={**os.environ, "TERM": "xterm", **environment})
        os.close(theirs)
        text = b""
        try:
            while chunk := os.read(ours, 4096):
                text += chunk
        except OSError:
            pass  # how a terminal ends on Linux
        os.close(ours)
        self.assertEqual(process.wait(), 0)
        return text

    def test_colour(self):
        self.assertIn(b"\033[", self.terminal(NO_COLOR=""))
        self.assertNotIn(b"\033", self.terminal(NO_COLOR="1"))
        self.assertNotIn(b"\033", self.terminal(NO_COLOR="", TERM="dumb"))
        self.assertNotIn("\033", self.succeeds("kernels"))


class Run(Case):
    def test_outputs(self):
        self.npz("plain.npz", zipfile.ZIP_DEFLATED, x=X, n=N)
        self.write("x.npy", X)
        self.write("n.npy", N)
        for i, inputs in enumerate([["--inputs", "io.npz"], ["--inputs=plain.npz"], ["--input", "x=x.npy", "--input=n=n.npy"],
                                    ["--inputs", "io.npz", "--input", "x=x.npy", "--threads=1", "--no-fuse"]]):
            text = self.succeeds("run", "m.onnx", *inputs, "--outputs", f"out{i}.npz", "--output", "sum=sum.npy")
            self.assertRegex(text, r"sum +f32 +\[2, 3\] +10 +22\.5 +35 +10 21 32 13 \.\.\.")
            self.assertIn("0 attentions: 0 fused, 0 left alone", text)
            self.assertEqual(read_npy((self.folder / "sum.npy").read_bytes()), ("<f4", (2, 3), [10, 21, 32, 13, 24, 35]))
            with zipfile.ZipFile(self.folder / f"out{i}.npz") as archive:
                self.assertIsNone(archive.testzip())
                self.assertEqual(archive.namelist(), ["sum.npy", "twice.npy"])
                self.assertEqual(read_npy(archive.read("twice.npy")), ("<i8", (2,), [14, -16]))
            self.assertEqual((self.folder / f"out{i}.npz").read_bytes(), (self.folder / "out0.npz").read_bytes())

    def test_json(self):
        report = self.json("run", "m.onnx", "--inputs", "io.npz", "--repeat", "3", "--threads", "1")
        self.assertEqual((report["model"], report["runs"], report["threads"]), ("m.onnx", 3, 1))
        self.assertLessEqual(report["time_ms"]["min"], report["time_ms"]["median"])
        self.assertEqual(report["attention"], {"fused": 0, "refused": 0, "kernels": {}})
        self.assertEqual(report["outputs"][1], {"name": "twice", "type": "i64", "shape": [2], "min": -16, "mean": -1, "max": 14,
                                                "n_nan": 0, "n_inf": 0})

    def test_not_finite(self):
        self.write("x.npy", npy("<f4", (1, 3), [float("nan"), float("inf"), 1]))
        arguments = ["run", "m.onnx", "--inputs", "io.npz", "--input", "x=x.npy"]
        self.assertIn("nan inf 31 (1 NaN, 1 infinite)", self.succeeds(*arguments))
        output = self.json(*arguments)["outputs"][0]
        self.assertEqual([output[k] for k in ("min", "max", "n_nan", "n_inf")], [31, 31, 1, 1])
        self.write("x.npy", npy("<f4", (0, 3), []))
        self.assertEqual(self.json(*arguments)["outputs"][0]["min"], None)

    def test_random(self):
        arguments = ["run", "m.onnx", "--random", "--dim", "batch=5"]
        first, again, other = (self.json(*arguments, "--seed", seed)["outputs"] for seed in (1, 1, 2))
        self.assertEqual(first[0]["shape"], [5, 3])
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_bad_models(self):
        whole = small_model()
        self.write("empty", b"")
        self.write("random", random.Random(1).randbytes(1000))
        self.write("unknown", small_model("Frobnicate"))
        self.write("external", small_model(external="weights.bin"))
        for name in ["empty", "random", "nothing", "."]:
            for command in [["run", name], ["explain", name], ["check", name, "--io", "io.npz"]]:
                self.fails(*command, saying=[name])
        for size in range(1, len(whole), 7):
            self.write("cut", whole[:size])
            self.fails("run", "cut", "--inputs", "io.npz", saying=["cut"])
        self.fails("run", "unknown", "--inputs", "io.npz", saying=["unknown", "Frobnicate"])
        self.fails("run", "external", "--inputs", "io.npz", saying=["external", "weights.bin"])
        self.write("weights.bin", WEIGHTS[:8])
        self.fails("run", "external", "--inputs", "io.npz", saying=["external", "weights.bin"])
        self.write("weights.bin", WEIGHTS)
        self.succeeds("run", "external", "--inputs", "io.npz")

    def test_bad_inputs(self):
        self.fails("run", "m.onnx", saying=["m.onnx: input 'x' (f32 [batch, 3]) is missing; give arrays by --inputs"])
        self.npz("half.npz", x=X)
        self.fails("run", "m.onnx", "--inputs", "half.npz", saying=["input 'n' (i64 [2]) is missing in half.npz"])
        self.fails("run", "m.onnx", "--inputs", "io.npz", "--input", "z=x.npy", saying=["m.onnx: has no input 'z'"])
        self.fails("run", "m.onnx", "--inputs", "nothing.npz", saying=["nothing.npz: No such file"])
        self.fails("run", "m.onnx", "--inputs", "m.onnx", saying=["m.onnx: not an npz file"])
        self.fails("run", "m.onnx", "--input", "x=io.npz", saying=["io.npz: not an npy array"])
        for name, data, words in [("rank", npy("<f4", (3,), [1, 2, 3]), "x"), ("size", npy("<f4", (2, 2), [1] * 4), "x"),
                                  ("type", npy("<f8", (2, 3), [1] * 6), "x"), ("cut", X[:-1], "truncated"),
                                  ("huge", X.replace(b"(2, 3)", b"(9**9)"), "npy header"), ("void", b"", "empty"),
                                  ("long", X + b"\0", "after the end"), ("random", random.Random(2).randbytes(500), "not an npy")]:
            self.write(name, data)
            self.fails("run", "m.onnx", "--inputs", "io.npz", "--input", f"x={name}", "--outputs", "out.npz", saying=[words])
            self.npz("bad.npz", x=data, n=N)
            self.fails("run", "m.onnx", "--inputs", "bad.npz", "--outputs", "out.npz", saying=[words])

    def test_bad_npz(self):
        whole = (self.folder / "io.npz").read_bytes()
        for size in range(0, len(whole) - 1, 97):
            self.write("cut.npz", whole[:size])
            self.fails("run", "m.onnx", "--inputs", "cut.npz", saying=["cut.npz"])
        at = whole.index(b"\x93NUMPY") + 130  # in the data of x: the sum of the member no longer fits
        self.write("flipped.npz", whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        self.fails("run", "m.onnx", "--inputs", "flipped.npz", saying=["flipped.npz: in_x: "])
        self.write("noise.npz", random.Random(3).randbytes(400))
        self.fails("run", "m.onnx", "--inputs", "noise.npz", saying=["noise.npz: not an npz file"])

    def test_unwritable_outputs(self):
        run = ["run", "m.onnx", "--inputs", "io.npz"]
        (self.folder / "folder").mkdir()
        for option in ["--outputs=", "--output=sum="]:
            self.fails(*run, option + "no/out", saying=["no/out: cannot write: No such file or directory"])
            self.fails(*run, option + "folder", saying=["folder: is a folder"])
            self.fails(*run, option + "/dev/null", saying=["/dev/null: is a device"])
        self.fails(*run, "--output", "product=p.npy", saying=["has no output 'product'"])

    def test_no_half_written_file(self):
        self.write("x.npy", npy("<f4", (20000, 3), [1.0] * 60000))
        self.write("out", b"before")
        names = sorted(os.listdir(self.folder))
        for option in ["--outputs=out", "--output=sum=out"]:
            done = self.heed("run", "m.onnx", "--inputs", "io.npz", "--input", "x=x.npy", option, restore_signals=False,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000)))
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"^heed: out: cannot write: .*File too large\n$")
            self.assertEqual((self.folder / "out").read_bytes(), b"before")
            self.assertEqual(sorted(os.listdir(self.folder)), names)


class Check(Case):
    def test_passes(self):
        self.assertIn("\nok\n", self.succeeds("check", "m.onnx", "--io", "io.npz"))
        self.assertEqual(self.json("check", "m.onnx", "--io", "io.npz"), {
            "model": "m.onnx", "attention": {"fused": 0, "refused": []},
            "outputs": [{"name": "sum", "max_abs_err": 0, "ok": True}, {"name": "twice", "max_abs_err": 0, "ok": True}],
            "fused_vs_unfused_max_abs": 0, "ok": True})

    def test_finds_differences(self):
        def report(**outputs):
            self.npz("wrong.npz", in_x=X, in_n=N, **{"out_0": SUM, "out_1": TWICE, **outputs})
            done = self.heed("check", "m.onnx", "--io", "wrong.npz")
            self.assertEqual((done.returncode, done.stderr, done.stdout.splitlines()[-1]), (1, "", "FAILED"))
            return self.json("check", "m.onnx", "--io", "wrong.npz", code=1)

        wrong = report(out_0=npy("<f4", (2, 3), [10, 21, 32, 13, 24, 36]))
        self.assertEqual([(o["max_abs_err"], o["ok"]) for o in wrong["outputs"]], [(1, False), (0, True)])
        self.assertIn("1 of 6 values differ, most at [1, 2]: is 35, expected 36", wrong["outputs"][0]["reason"])
        self.assertFalse(wrong["ok"])
        self.assertIsNone(report(out_0=npy("<f4", (2, 3), [10, 21, 32, 13, 24, float("nan")]))["outputs"][0]["max_abs_err"])
        self.assertIn("type is i64, expected i32", report(out_1=npy("<i4", (2,), [14, -16]))["outputs"][1]["reason"])
        self.assertIn("shape is [2], expected [1, 2]", report(out_1=npy("<i8", (1, 2), [14, -16]))["outputs"][1]["reason"])
        self.npz("part.npz", in_x=X, in_n=N, out_0=SUM)
        self.assertIn("not in part.npz", self.json("check", "m.onnx", "--io", "part.npz", code=1)["outputs"][1]["reason"])

    def test_tolerances(self):
        self.npz("near.npz", in_x=X, in_n=N, out_0=npy("<f4", (2, 3), [10.0125, 21, 32, 13, 24, 35]), out_1=TWICE)
        self.json("check", "m.onnx", "--io", "near.npz", code=1)
        self.json("check", "m.onnx", "--io", "near.npz", "--atol=0.02")
        self.json("check", "m.onnx", "--io", "near.npz", "--rtol=2e-3")
        self.json("check", "m.onnx", "--io", "near.npz", "--atol=3e-3", "--rtol=1e-3")
        self.json("check", "m.onnx", "--io", "near.npz", "--atol=3e-3", "--rtol=0", code=1)

    def test_errors(self):
        self.npz("no_in.npz", in_x=X, out_0=SUM, out_1=TWICE)
        self.npz("no_out.npz", in_x=X, in_n=N)
        for arguments, words in [(["m.onnx", "--io", "no_in.npz"], "input 'n' (i64 [2]) is missing in no_in.npz"),
                                 (["m.onnx", "--io", "no_out.npz"], "no_out.npz: holds no expected output"),
                                 (["m.onnx", "--io", "nothing"], "nothing: No such file"),
                                 (["m.onnx", "--data", "nothing"], "nothing: is not a folder"),
                                 (["m.onnx", "--data", "."], "is missing in ."),
                                 (["io.npz", "--io", "io.npz"], "io.npz")]:
            self.fails("check", *arguments, saying=[words])
            report = self.json("check", *arguments, code=1)
            self.assertEqual((report["ok"], report["outputs"], report["fused_vs_unfused_max_abs"]), (False, [], None))
            self.assertIn(words, report["error"])

    def data_set(self, name, total):
        self.write(f"{name}/input_0.pb", tensor("x", FLOAT, [1, 3], struct.pack("<3f", 1, 2, 3)))
        self.write(f"{name}/input_1.pb", tensor("", INT64, [2]) + field(7, varint(5) + varint(-6)))
        self.write(f"{name}/output_0.pb", tensor("", FLOAT, [1, 3], struct.pack("<3f", 11, 22, total)))
        self.write(f"{name}/output_1.pb", tensor("twice", INT64, [2], struct.pack("<2q", 10, -12)))

    def test_onnx_test_data(self):
        self.data_set("d/test_data_set_0", 33)
        self.data_set("d/test_data_set_1", 33)
        for name in ["d", "d/test_data_set_0"]:
            self.assertTrue(self.json("check", "m.onnx", "--data", name)["ok"])
        self.data_set("d/test_data_set_10", 34)
        report = self.json("check", "m.onnx", "--data", "d", code=1)
        self.assertEqual([(o["name"], o["max_abs_err"], o["ok"]) for o in report["outputs"]], [("sum", 1, False), ("twice", 0, True)])
        self.write("d/test_data_set_10/input_2.pb", tensor("", FLOAT, [], struct.pack("<f", 1)))
        self.fails("check", "m.onnx", "--data", "d", saying=["input_2.pb: the model has no input for it"])
        self.write("d/test_data_set_10/input_1.pb", b"\xff\xff")
        self.fails("check", "m.onnx", "--data", "d", saying=["input_1.pb: not an ONNX tensor"])

    def test_all(self):
        near = npy("<f4", (2, 3), [10.1, 21, 32, 13, 24, 35])
        self.write("cases/a/model.onnx", small_model())
        self.npz("cases/a/io.npz", in_x=X, in_n=N, out_0=SUM, out_1=TWICE)
        self.write("cases/b/model.onnx", small_model())
        self.npz("cases/b/io.npz", in_x=X, in_n=N, out_0=near, out_1=TWICE)
        self.write("cases/b/meta.json", b'{"atol": 0.2, "attention_calls": 0}')
        self.write("cases/c/model.onnx", small_model())
        self.data_set("cases/c/test_data_set_0", 33)
        self.write("cases/notes.txt", b"")
        self.assertEqual(self.succeeds("check", "--all", "cases").splitlines()[-1], "3 passed, 0 failed")
        self.write("cases/d/model.onnx", b"nonsense")
        self.write("cases/b/meta.json", b"")
        done = self.heed("check", "--all", "cases")
        self.assertEqual((done.returncode, done.stderr, done.stdout.splitlines()[-1]), (1, "", "2 passed, 2 failed"))
        report = self.json("check", "--all", "cases", code=1)
        self.assertEqual([c["ok"] for c in report["cases"]], [True, False, True, False])
        self.assertEqual((report["passed"], report["failed"], report["ok"]), (2, 2, False))
        self.json("check", "--all", "cases", "--atol=1", code=1)
        self.fails("check", "--all", "cases/a", saying=["cases/a: holds no NAME/model.onnx"])
        self.fails("check", "--all", "nothing", saying=["nothing: is not a folder"])


class Explain(Case):
    def test_attention(self):
        name = MODELS / "torch_manual.ts17_sdpa"
        known = json.loads((name / "meta.json").read_text())["attention_calls"]
        report = self.json("explain", name / "model.onnx")
        self.assertEqual((report["fused"], report["refused"], len(report["attention"])), (known, 0, known))
        for entry in report["attention"]:
            self.assertEqual(sorted(entry), ["fused", "kernel", "node", "reason", "shapes", "why"])
            self.assertTrue(entry["node"] and entry["reason"] and entry["shapes"])
        text = self.succeeds("explain", name / "model.onnx")
        self.assertTrue(text.startswith(f"{known} attention{'s' * (known != 1)}: {known} fused, 0 left alone\n\n1. "))
        self.assertIn(report["attention"][0]["node"] + ": fused\n", text)

    def test_left_alone(self):
        path = MODELS / "torch_neg_scores_used.ts17_sdpa" / "model.onnx"
        report = self.json("explain", path)
        self.assertEqual((report["fused"], report["refused"]), (0, 1))
        text = self.succeeds("explain", path)
        self.assertIn(": left alone\n   reason  " + report["attention"][0]["reason"], text)
        io = path.parent / "io.npz"
        refused = self.json("check", path, "--io", io)["attention"]["refused"]
        self.assertEqual(refused, [{k: report["attention"][0][k] for k in ("node", "reason")}])

    def test_run_names_kernels(self):
        name = MODELS / "torch_manual.ts17_sdpa"
        arguments = ["run", name / "model.onnx", "--inputs", name / "io.npz"]
        fused, unfused = self.json(*arguments)["attention"], self.json(*arguments, "--no-fuse")["attention"]
        self.assertEqual((fused["fused"], list(fused["kernels"].values())), (1, [1]))
        self.assertIn(next(iter(fused["kernels"])), [k["name"] for k in self.json("kernels")["kernels"]])
        self.assertEqual(unfused, {"fused": 0, "refused": 0, "kernels": {}})
        self.assertRegex(self.succeeds(*arguments), r"\n1 attention: 1 fused, 0 left alone, by \w+ x 1\n")

    def test_graph(self):
        text = self.succeeds("explain", "m.onnx", "--graph")
        self.assertIn("Add", text)
        self.assertEqual(self.json("explain", "m.onnx", "--graph")["graph"].strip(), text.split("\n\n", 1)[1].strip())
        self.assertNotIn("graph", self.json("explain", "m.onnx"))


class Kernels(Case):
    def test_list(self):
        kernels = self.json("kernels")["kernels"]
        self.assertGreater(len(kernels), 3)
        self.assertTrue(any(k["runs_here"] for k in kernels))
        lines = self.succeeds("kernels").splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:]], [k["name"] for k in kernels])

    def test_choice(self):
        problem = ["kernels", "--heads=8/2", "--head-dim=64/32", "--len-q=7", "--len-k", "300", "--causal=top-left", "--mask=f32",
                   "--window=100/0", "--softcap=30", "--scale=0.5", "--sinks", "--key-lengths", "--lse", "--batch=2"]
        choice = self.json(*problem)["choice"]
        self.assertIn(choice["kernel"], choice["why"])
        text = self.succeeds(*problem)
        self.assertTrue(text.startswith(choice["kernel"]))
        pinned = self.json(*problem, "--kernel=reference")["choice"]
        self.assertIn("reference", pinned["kernel"])

    def test_errors(self):
        self.fails("kernels", "--heads=8/3", saying=["heads"])
        self.fails("kernels", "--head-dim=0", saying=["head_dim"])
        self.fails("kernels", "--kernel=fastest", saying=["fastest"])


if __name__ == "__main__":
    UPDATE = "--update" in sys.argv
    HEED, MODELS = (Path(p).resolve() for p in [a for a in sys.argv[1:] if not a.startswith("-")][:2])
    unittest.main(argv=sys.argv[:1], verbosity=1)
