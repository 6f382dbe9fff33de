"""Build posenc._core: the binding once, and every file under csrc/kernels once per (ISA, real).

Objects stay in build/, in a folder for each compiler and its flags. A later build, also one by pip in its own
environment, compiles only the files that have changed. All other configuration is in pyproject.toml, which cannot
describe such an extension.

On x86-64 the ISAs are base and the best one of this CPU, or every one with POSENC_VARIANTS=all.

Variables: CC and CFLAGS as everywhere. POSENC_CFLAGS and POSENC_LDFLAGS are appended last; a flag -g keeps debug
information. POSENC_BUILD_MACHINE is the machine to compile for, as platform.machine() names it, with every ISA.
"""

import functools
import hashlib
import json
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import product
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError, OptionError

# The files of a wheel carry this date, the first that zip archives know: two builds have the same bytes.
os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")

# Name of a variant: the flags that let the compiler use it. runtime/cpu.c probes exactly these bits. CPUs that run base
# are from before 2013; -O2 overrides -O3 and takes three quarters of its time.
X86 = {
    "base": ["-O2"],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
}
MACHINE = os.environ.get("POSENC_BUILD_MACHINE", platform.machine()).lower()
GNU_FLAGS = [
    "-std=c11", "-O3", "-ffp-contract=fast", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math",
    "-fno-wrapv", "-fvisibility=hidden",
]  # fmt: skip

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
        command = [self.compiler.cc] if self.compiler.compiler_type == "msvc" else self.compiler.compiler_so
        return [*command, subprocess.check_output([*command, "--version"], text=True)]

    def use_clang_cl(self):
        """Compile with clang-cl. setuptools finds the headers and the linker of Visual Studio."""
        self.compiler.initialize(self.plat_name)
        self.compiler.cc = os.environ.get("CC") or shutil.which("clang-cl")
        self.compiler.compile_options = ["/nologo", "/MD"]
        if not self.compiler.cc:
            raise CompileError("posenc is not compiled by cl; put clang-cl of LLVM on PATH, or set CC to its path")

    def variants(self):
        """The variants to compile, {name: flags}: on x86-64 base and what runtime/cpu.c finds best, or all."""
        wanted = words("POSENC_VARIANTS")
        if wanted not in ([], ["all"]):
            raise OptionError(f"POSENC_VARIANTS is {' '.join(wanted)!r}; expected 'all', or nothing for this CPU alone")
        if MACHINE not in ("x86_64", "amd64"):
            return {"base": []}
        if wanted or "POSENC_BUILD_MACHINE" in os.environ:
            return X86
        probe = os.path.join(self.build_temp, "probe")
        try:
            source = str(CSRC / "runtime" / "cpu.c")
            objects = self.compiler.compile([source], self.build_temp, [("PE_PROBE", "1")], [str(CSRC)])
            self.compiler.link_executable(objects, probe)
            best = subprocess.check_output([probe], text=True).strip()
        except (CompileError, LinkError, OSError, subprocess.CalledProcessError) as error:
            self.warn(f"every instruction set is compiled, because this CPU cannot be probed: {error}")
            return X86
        return {isa: flags for isa, flags in X86.items() if isa in ("base", best)}

    def compile_all(self, jobs):
        """Compile jobs (source, folder, flags, macros, include directories, whatever else the object depends on)."""
        compiler, done, msvc = self.compiler_and_flags(), [], self.compiler.compiler_type == "msvc"

        def compile_one(job):
            source, folder, flags, macros, include, *others = job
            setting = hashlib.sha256(repr((compiler, flags, macros, others)).encode()).hexdigest()[:16]
            output = os.path.join("build", setting, folder)
            (name,) = self.compiler.object_filenames([str(source)], output_dir=output)
            stamp, wanted = Path(f"{name}.sha256"), digest(source)
            if self.force or not Path(name).exists() or not stamp.exists() or stamp.read_text() != wanted:
                stamp.unlink(missing_ok=True)
                options = [f"/clang:{flag}" for flag in flags] if msvc else flags
                self.compiler.compile([str(source)], output, macros, include, extra_postargs=options)
                stamp.write_text(wanted)
            done.append(name)
            self.announce(f"[{len(done)}/{len(jobs)}] {name}", level=logging.INFO)
            return name

        with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()) as pool:
            return list(pool.map(compile_one, jobs))

    def build_extension(self, ext):
        msvc = self.compiler.compiler_type == "msvc"
        if msvc:
            self.use_clang_cl()
        variants = self.variants()
        debug = any(flag.startswith("-g") for flag in [*words("CFLAGS"), *words("POSENC_CFLAGS")])
        # Fuse a b + c everywhere: with "fast" clang does so only in one block, and gcc 13 leaves chains of AVX2 apart.
        fused = "-ffp-contract=on" if "clang" in self.compiler_and_flags()[-1] else "--param=avoid-fma-max-bits=0"
        flags, last = [*([] if debug else ["-g0"]), *GNU_FLAGS, fused], words("POSENC_CFLAGS")
        include = list(map(str, INCLUDE))
        jobs = [
            (source, f"{isa}_{bits}", [*flags, *variants[isa], *last], [("PE_ISA", isa), ("PE_REAL", bits)], include)
            for source, isa, bits in product(KERNELS, variants, ("32", "64"))
        ]
        flags += last
        listed, build = " ".join(f"V({isa})" for isa in variants), f"{' '.join(variants)}, {' '.join(flags)}"
        macros = [*ext.define_macros, ("PE_VARIANTS", listed), ("PE_BUILD", f'"{build}"')]
        include = [numpy.get_include(), *include]  # build isolation moves NumPy
        jobs += [(source, "binding", flags, macros, include, sys.version, numpy.__version__) for source in BINDING]

        ext.extra_objects = self.compile_all(jobs)
        ext.sources, self.force, self.compiler.force = [], True, True  # link again, whatever the age of the module
        if not msvc and not debug:
            ext.extra_link_args.insert(0, "-Wl,-x" if sys.platform == "darwin" else "-s")  # no names of functions
        super().build_extension(ext)
        self.remove_older(Path(self.get_ext_fullpath(ext.name)))

    def copy_extensions_to_source(self):
        super().copy_extensions_to_source()
        self.remove_older(Path(self.get_ext_filename("posenc._core")))

    def remove_older(self, module):
        """Remove modules of older builds that Python would import in place of this one, which lies beside them."""
        stem, _, suffix = module.name.partition(".")
        for older in EXTENSION_SUFFIXES[: EXTENSION_SUFFIXES.index(f".{suffix}")]:
            module.with_name(stem + older).unlink(missing_ok=True)

    def get_source_files(self):
        return list(map(str, [*BINDING, *KERNELS, *HEADERS]))


class bdist_wheel_with_sbom(bdist_wheel):
    """Add a bill of materials: the wheel contains no code of other projects."""

    def egg2dist(self, egginfo_path, distinfo_path):
        super().egg2dist(egginfo_path, distinfo_path)
        name, version = self.distribution.get_name(), self.distribution.get_version()
        component = {
            "type": "library",
            "bom-ref": name,
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "licenses": [{"license": {"id": self.distribution.metadata.license_expression}}],
        }
        sbom = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": component},
            "components": [],
            "compositions": [{"aggregate": "complete", "assemblies": [name]}],
        }
        folder = Path(distinfo_path, "sboms")
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.cdx.json").write_text(json.dumps(sbom, indent=2) + "\n", encoding="utf-8")


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
    cmdclass={"build_ext": build_core, "bdist_wheel": bdist_wheel_with_sbom},
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if LIMITED else {},
)
