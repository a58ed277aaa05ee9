#!/usr/bin/env python3
"""packaging/sbom.py: the list of what is in the released files (a software bill of materials), as CycloneDX 1.6 in JSON.

    packaging/sbom.py FOLDER > duet.cdx.json

Each file of FOLDER is a component with its hash; each names the code of others that was compiled or linked into it, with the
version that this machine has. The same files give the same bytes (SOURCE_DATE_EPOCH is the time).
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import uuid


def output(*command):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def found(path, pattern):
    try:
        with open(path, encoding="utf-8") as file:
            match = re.search(pattern, file.read(), re.M)
    except OSError:
        return ""
    return ".".join(match.groups()) if match else ""


def library(name, version, licence, url):
    if not version:
        return None
    return {"type": "library", "bom-ref": f"{name}@{version}", "name": name, "version": version,
            "licenses": [{"expression": licence}], "externalReferences": [{"type": "website", "url": url}]}


gcc = library("libstdc++", output("g++", "-dumpfullversion"), "GPL-3.0-or-later WITH GCC-exception-3.1", "https://gcc.gnu.org")
mingw_gcc = library("libstdc++", output("x86_64-w64-mingw32-g++-posix", "-dumpfullversion") or output("x86_64-w64-mingw32-g++-posix", "-dumpversion"),
                    "GPL-3.0-or-later WITH GCC-exception-3.1", "https://gcc.gnu.org")
mingw = library("mingw-w64", output("dpkg-query", "-W", "-f", "${Version}", "mingw-w64-common"), "ZPL-2.1", "https://www.mingw-w64.org")
glibc = library("glibc", output("getconf", "GNU_LIBC_VERSION").replace("glibc ", ""), "LGPL-2.1-or-later", "https://sourceware.org/glibc/")
libcxx = library("libc++ of zig", found("bindings/python/tools.txt", r"^ziglang==([\d.]+)"), "Apache-2.0 WITH LLVM-exception", "https://ziglang.org")
boost = library("Boost", found("/usr/include/boost/version.hpp", r'^#define BOOST_LIB_VERSION "([\d_]+)"').replace("_", "."),
                "BSL-1.0", "https://www.boost.org")
nlohmann = library("nlohmann-json", found("/usr/include/nlohmann/detail/abi_macros.hpp", r"VERSION_MAJOR (\d+)[^\n]*\n[^\n]*MINOR (\d+)[^\n]*\n[^\n]*PATCH (\d+)")
                   or found("/usr/include/nlohmann/json.hpp", r"VERSION_MAJOR (\d+)[^\n]*\n[^\n]*MINOR (\d+)[^\n]*\n[^\n]*PATCH (\d+)"),
                   "MIT", "https://github.com/nlohmann/json")
unicode_data = library("Unicode Character Database", found("models/unicode_data.inc", r"from Unicode ([\d.]+)\."), "Unicode-3.0", "https://www.unicode.org/ucd/")
# what each kind of file has in it; the programs of a distribution's package take the C++ library from there
INSIDE = (
    (r"^duet_.*\.deb$", [unicode_data, boost, nlohmann]),
    (r"^libduet\d+_.*\.deb$", [unicode_data, gcc]),
    (r"^libduet-dev_.*\.deb$", [unicode_data]),
    (r"-static\.tar\.gz$", [unicode_data, gcc, glibc]),
    (r"-linux-[^-]*\.tar\.gz$", [unicode_data, libcxx, boost, nlohmann]),
    (r"-windows-.*\.zip$", [unicode_data, mingw_gcc, mingw, boost, nlohmann]),
    (r"\.whl$", [unicode_data, libcxx]),
    (r"-source\.tar\.gz$|^duet-[\d.]*\.tar\.gz$", [unicode_data]),
)


def main():
    folder = sys.argv[1]
    header = open("runtime.h", encoding="utf-8").read()
    version = ".".join(re.findall(r"^#define DUET_VERSION_[A-Z]+ +(\d+)$", header, re.M))
    commit = output("sh", "packaging/commit.sh")
    components, libraries, dependencies = [], {}, []
    for name in sorted(os.listdir(folder)):
        if name.startswith("SHA256SUMS") or name.endswith(".cdx.json"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        inside = next((rows for pattern, rows in INSIDE if re.search(pattern, name)), None)
        if inside is None:
            sys.exit(f"packaging/sbom.py: {name}: no row of INSIDE says what is in it")
        inside = [row for row in inside if row]
        libraries.update((row["bom-ref"], row) for row in inside)
        components.append({"type": "file", "bom-ref": name, "name": name, "version": version, "licenses": [{"license": {"id": "MIT"}}],
                           "hashes": [{"alg": "SHA-256", "content": digest}]})
        dependencies.append({"ref": name, "dependsOn": sorted({row["bom-ref"] for row in inside})})
    if not components:
        sys.exit(f"packaging/sbom.py: {folder}: want released files, found none")
    when = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "0")) or time.time())
    names = "".join(c["hashes"][0]["content"] for c in components)
    sbom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, names)}", "version": 1,
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", when),
                     "component": {"type": "application", "bom-ref": "duet", "name": "duet", "version": version,
                                   "licenses": [{"license": {"id": "MIT"}}],
                                   "properties": [{"name": "duet:commit", "value": commit}]}},
        "components": components + [libraries[ref] for ref in sorted(libraries)],
        "dependencies": [{"ref": "duet", "dependsOn": [c["bom-ref"] for c in components]}] + dependencies,
    }
    print(json.dumps(sbom, indent=1))


main()
