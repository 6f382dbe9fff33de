"""Build posenc._core: the binding once, and every file under csrc/kernels once per (ISA, real).

All other configuration is in pyproject.toml, which cannot describe such an extension.
"""

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, product
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

CSRC = Path("csrc")
KERNELS = sorted(map(str, CSRC.glob("kernels/**/*.c")))
HEADERS = sorted(map(str, [*CSRC.glob("*.def"), *CSRC.glob("**/*.h")]))
INCLUDE = [str(CSRC), str(CSRC / "kernels")]


class build_kernels(build_ext):
    """Compile csrc/kernels once per (ISA, real) into objects that the extension links."""

    def build_extension(self, ext):
        msvc = self.compiler.compiler_type == "msvc"
        variants = X86 if MACHINE in ("x86_64", "amd64") and not msvc else {"base": []}
        flags = [*(MSVC_FLAGS if msvc else GNU_FLAGS), *os.environ.get("POSENC_CFLAGS", "").split()]

        def compile_for(variant):
            isa, bits = variant
            return self.compiler.compile(
                KERNELS,
                output_dir=os.path.join(self.build_temp, f"{isa}_{bits}"),
                include_dirs=INCLUDE,
                macros=[("PE_ISA", isa), ("PE_REAL", bits)],
                extra_postargs=flags + variants[isa],
                depends=HEADERS,
            )

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            ext.extra_objects = list(chain.from_iterable(pool.map(compile_for, product(variants, ("32", "64")))))
        listed, build = " ".join(f"V({isa})" for isa in variants), " ".join(flags)
        ext.define_macros += [("PE_VARIANTS", listed), ("PE_BUILD", f'"{build}"')]
        ext.extra_compile_args += flags
        super().build_extension(ext)

    def get_source_files(self):
        return [*super().get_source_files(), *KERNELS, *HEADERS]


setup(
    ext_modules=[
        Extension(
            "posenc._core",
            sorted(map(str, [*CSRC.glob("python/*.c"), *CSRC.glob("runtime/*.c")])),
            depends=[*KERNELS, *HEADERS],
            include_dirs=[numpy.get_include(), *INCLUDE],
            extra_link_args=os.environ.get("POSENC_LDFLAGS", "").split()
            + ([] if sys.platform == "win32" else ["-pthread"]),
        )
    ],
    cmdclass={"build_ext": build_kernels},
)
