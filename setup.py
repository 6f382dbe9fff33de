"""Build posenc._core: the binding once, and every file under csrc/kernels once per (ISA, real).

Objects stay in build/, in a folder for each compiler and its flags. A later build, also one by pip in an environment of
its own, compiles only the files that have changed. All other configuration is in pyproject.toml, which cannot describe
such an extension.

Variables: CC and CFLAGS as everywhere. POSENC_CFLAGS and POSENC_LDFLAGS are appended last; -g in one of the flags keeps
debug information. POSENC_BUILD_MACHINE is the machine to compile for, as platform.machine() names it.
"""

import functools
import hashlib
import os
import platform
import re
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import product
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Name of a variant: the flags that let the compiler use it. dispatch.c probes exactly these bits.
X86 = {"base": [], "avx2": ["-mavx2", "-mfma", "-mf16c"], "avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"]}
MACHINE = os.environ.get("POSENC_BUILD_MACHINE", platform.machine()).lower()
GNU_FLAGS = [
    "-std=c11", "-O3", "-ffp-contract=fast", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math",
    "-fno-wrapv", "-fvisibility=hidden",
]  # fmt: skip
MSVC_FLAGS = ["/O2", "/std:c11", "/fp:precise", "/experimental:c11atomics"]

# A module for the Limited API of Python 3.10 serves all later versions, but no Python without the GIL.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")

CSRC = Path("csrc")
KERNELS = sorted(CSRC.glob("kernels/**/*.c"))
BINDING = sorted([*CSRC.glob("python/*.c"), *CSRC.glob("runtime/*.c")])
HEADERS = sorted([*CSRC.glob("*.def"), *CSRC.glob("**/*.h")])
INCLUDE = [CSRC, CSRC / "kernels"]


def words(name):
    """The words of an environment variable."""
    return os.environ.get(name, "").split()


@functools.cache
def included(file):
    """The files of csrc that this file includes itself."""
    names = re.findall(r'^\s*#\s*include\s+"(.+)"', file.read_text(encoding="utf-8"), re.MULTILINE)
    return [folder / name for name in names for folder in INCLUDE if (folder / name).exists()]


def digest(file):
    """A hash of this file and of all that it includes, directly or not."""
    found = [file]
    for one in found:
        found += [other for other in included(one) if other not in found]
    return hashlib.sha256(b"".join(one.read_bytes() for one in found)).hexdigest()


class build_core(build_ext):
    """Compile the files that have changed, on all cores, and link the extension."""

    def compiler_and_flags(self):
        """The compiler's command and version, which an object depends on."""
        if self.compiler.compiler_type == "msvc":
            self.compiler.initialize(self.plat_name)
            return [self.compiler.cc]  # the path has the version
        command = self.compiler.compiler_so
        return [*command, subprocess.check_output([*command, "--version"], text=True)]

    def compile_all(self, jobs):
        """Compile jobs (source, folder, flags, macros, include directories, whatever else the object depends on)."""
        compiler, done = self.compiler_and_flags(), []

        def compile_one(job):
            source, folder, flags, macros, include, *others = job
            setting = hashlib.sha256(repr((compiler, flags, macros, others)).encode()).hexdigest()[:16]
            output = os.path.join("build", setting, folder)
            (name,) = self.compiler.object_filenames([str(source)], output_dir=output)
            stamp, wanted = Path(f"{name}.sha256"), digest(source)
            if self.force or not Path(name).exists() or not stamp.exists() or stamp.read_text() != wanted:
                stamp.unlink(missing_ok=True)
                self.compiler.compile(
                    [str(source)], output_dir=output, include_dirs=include, macros=macros, extra_postargs=flags
                )
                stamp.write_text(wanted)
            done.append(name)
            self.announce(f"[{len(done)}/{len(jobs)}] {name}", level=2)
            return name

        with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()) as pool:
            return list(pool.map(compile_one, jobs))

    def build_extension(self, ext):
        msvc = self.compiler.compiler_type == "msvc"
        variants = X86 if MACHINE in ("x86_64", "amd64") and not msvc else {"base": []}
        debug = any(flag.startswith("-g") for flag in [*words("CFLAGS"), *words("POSENC_CFLAGS")])
        flags = [*(MSVC_FLAGS if msvc else GNU_FLAGS), *words("POSENC_CFLAGS")]
        if not msvc and not debug:
            flags.insert(0, "-g0")
        include = list(map(str, INCLUDE))
        jobs = [
            (source, f"{isa}_{bits}", flags + variants[isa], [("PE_ISA", isa), ("PE_REAL", bits)], include)
            for source, isa, bits in product(KERNELS, variants, ("32", "64"))
        ]
        listed, build = " ".join(f"V({isa})" for isa in variants), " ".join(flags)
        macros = [*ext.define_macros, ("PE_VARIANTS", listed), ("PE_BUILD", f'"{build}"')]
        include = [numpy.get_include(), *include]  # build isolation moves NumPy
        versions = [sys.version, numpy.__version__]
        jobs += [(source, "binding", flags, macros, include, *versions) for source in BINDING]

        ext.extra_objects = self.compile_all(jobs)
        ext.sources, self.force = [], True  # link again, whatever the age of the module
        if sys.platform == "linux" and not debug:
            ext.extra_link_args.insert(0, "-s")
        super().build_extension(ext)

    def copy_extensions_to_source(self):
        """Remove modules that older builds left beside the new one and Python would import in its place."""
        super().copy_extensions_to_source()
        for suffix in EXTENSION_SUFFIXES[: EXTENSION_SUFFIXES.index(".abi3.so") if LIMITED and os.name != "nt" else 0]:
            Path("posenc", "_core" + suffix).unlink(missing_ok=True)

    def get_source_files(self):
        return list(map(str, [*BINDING, *KERNELS, *HEADERS]))


setup(
    ext_modules=[
        Extension(
            "posenc._core",
            list(map(str, BINDING)),
            define_macros=[("Py_LIMITED_API", "0x030A0000")] if LIMITED else [],
            py_limited_api=LIMITED,
            extra_link_args=[*([] if sys.platform == "win32" else ["-pthread"]), *words("POSENC_LDFLAGS")],
        )
    ],
    cmdclass={"build_ext": build_core},
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if LIMITED else {},
)
