#!/usr/bin/env python3
"""packaging/from_help.py: man pages and completion for bash and zsh, made from what the programs print with -h, which comes
from their tables of flags (tools/args.h).

    packaging/from_help.py PREFIX PROGRAM...     writes share/man/man1/duet-run.1, share/bash-completion/completions/duet-run
                                                 and share/zsh/site-functions/_duet-run under PREFIX, for each PROGRAM

A program may be named run or duet-run. COMMIT_DATE: seconds since 1970 for the head of the man pages.
"""
import os
import re
import subprocess
import sys
import time

COLUMN = 36  # where the help of a flag begins
FILE_VALUES = ("FILE", "FILE|NAME", "OUT.gguf", "IN.gguf", "FILE.gguf")


class Option:
    def __init__(self, left, text):
        words = re.match(r"(-[^\s,]+(?:, -[^\s,]+)*)(?: (.+))?$", left)
        self.names = words[1].split(", ") if words else []
        self.value = (words[2] or "") if words else left  # an argument without a flag has only its name
        self.text = text
        self.choices = []  # values that are told elsewhere

    def is_file(self):
        return self.value in FILE_VALUES

    def is_model(self):
        return self.value.endswith(".gguf") or "-m" in self.names and self.is_file()

    def words(self):
        """The values to choose from, as far as the help names them."""
        if self.choices:
            return self.choices
        if self.value == "TYPE":
            return self.text.split(";")[0].split()
        if self.value == "NAME":  # "auto, cpu, cuda, hip, or a device"
            found = re.search(r"(?:^|: )((?:[a-z0-9]+, ){2,}(?!or )[a-z0-9]+)", self.text)
            return found[1].split(", ") if found else []
        return [w for w in self.value.split("|") if re.fullmatch(r"[a-z0-9_-]+", w)] if "|" in self.value else []


class Program:
    def __init__(self, path):
        own = os.path.basename(path)
        self.tool = own[5:] if own.startswith("duet-") else own
        self.name = "duet-" + self.tool
        lines = subprocess.run([path, "-h"], check=True, capture_output=True, text=True).stdout.split("\n")
        usage = f"usage: {self.tool} "
        if not (lines[1] == "" and lines[2].startswith(usage) and lines[3] == ""):
            sys.exit(f"{path} -h: want a line, and one that begins with '{usage}', got {lines[:4]}")
        self.about, self.usage = lines[0], lines[2][len(usage):]
        self.sections, self.exit = [("Options", [])], "0 done, 1 failed, 2 wrong command line."
        rest = iter(lines[4:])
        for line in rest:
            if line.startswith("Exit code: "):
                self.exit = line[len("Exit code: "):]
            elif line.startswith("  ") and len(line) > COLUMN and line[COLUMN - 2:COLUMN] == "  ":
                self.sections[-1][1].append(Option(line[:COLUMN].strip(), line[COLUMN:]))
            elif line.startswith("  "):
                self.sections[-1][1].append(Option(line.strip(), next(rest).strip()))
            elif line:
                self.sections.append((line.rstrip(":"), []))
        self.options = [o for _, options in self.sections for o in options]
        self.flags = [o for o in self.options if o.names]
        isas = [o for o in self.flags if o.value == "ISA"]
        if isas:
            built = subprocess.run([path, "--version"], check=True, capture_output=True, text=True).stdout
            isas[0].choices = ["auto", *re.search(r"cpu: ([a-z0-9_, ]+)", built)[1].split(", ")]
        self.positionals = [o for o in self.options if not o.names]
        if not any("--help" in o.names for o in self.flags):
            sys.exit(f"{path} -h: found no --help among {len(self.flags)} flags")


def installed_names(text, programs):
    """The programs by the names they are installed under: bin/quantize is duet-quantize, and run --devices duet-run --devices."""
    names = "|".join(p.tool for p in programs)
    return re.sub(rf"\b(?:bin/|\./)({names})\b|\b({names})(?= -)", lambda m: "duet-" + (m[1] or m[2]), text)


# ---- man pages ------------------------------------------------------------------------------------------------------


def roff(text):
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"))


def man(program, programs, version, date):
    def text(words):
        return roff(installed_names(words, programs))

    def left(option):
        names = ", ".join(f"\\fB{roff(n)}\\fR" for n in option.names)
        return " ".join(filter(None, [names, option.value and f"\\fI{roff(option.value)}\\fR"]))

    out = [f'.TH {program.name.upper()} 1 "{time.strftime("%Y-%m-%d", time.gmtime(date))}" "Duet {version}" "User Commands"',
           ".SH NAME", f"{program.name} \\- {text(program.about[0].lower() + program.about[1:].rstrip('.').split('. ')[0])}",
           ".SH SYNOPSIS", f".B {program.name}", text(program.usage), ".SH DESCRIPTION", text(program.about)]
    for title, options in program.sections:
        if options:
            # the last two are for every program, and no part of the section before them
            if options[-1].names == ["--version"] and title != "Options":
                options, general = options[:-2], options[-2:]
            else:
                general = []
            out += [".SH OPTIONS"] if title == "Options" else [f".SS {text(title)}"]
            for option in options:
                out += [".TP", left(option), text(option.text)]
            if general:
                out.append(".SS Every program has")
                for option in general:
                    out += [".TP", left(option), text(option.text)]
    out += [".SH EXIT STATUS", text(program.exit), ".SH SEE ALSO"]
    others = sorted(p.name for p in programs if p is not program)
    out += [f".BR {roff(name)} (1){',' if name != others[-1] else ''}" for name in others]
    return "\n".join(out) + "\n"


# ---- completion -----------------------------------------------------------------------------------------------------


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def bash_values(option):
    if option.is_model():
        return "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -X '!*.gguf' -- \"$cur\"; compgen -d -- \"$cur\")"
    if option.words():
        return f"mapfile -t COMPREPLY < <(compgen -W {quoted(' '.join(option.words()))} -- \"$cur\")"
    if option.is_file():
        return "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")"
    return ""


def bash(program):
    function = "_" + program.name.replace("-", "_")
    out = [f"# completion of {program.name} for bash, made from {program.name} -h", f"{function}() {{",
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}",
           "    # --flag=value comes as three words",
           "    if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi",
           "    COMPREPLY=()", "    case $prev in"]
    for option in program.flags:
        if option.value:
            out.append(f"        {'|'.join(option.names)}) {bash_values(option)} ;;".replace("  ;;", " ;;"))
    out += ["        *)", "            if [[ $cur == -* ]]; then",
            f"                mapfile -t COMPREPLY < <(compgen -W {quoted(' '.join(n for o in program.flags for n in o.names))} -- \"$cur\")"]
    if program.positionals:
        # words before this one that are neither flags nor their values
        valued = "|".join(n for o in program.flags if o.value for n in o.names)
        out += ["            else", "                local i n=0", "                for ((i = 1; i < COMP_CWORD; i++)); do",
                "                    case ${COMP_WORDS[i]} in"]
        out += [f"                        {valued}) ((i++)) ;;"] if valued else []
        out += ["                        -*) ;;", "                        *) ((++n)) ;;", "                    esac",
                "                done", "                case $n in"]
        out += [f"                    {i}) {bash_values(o)} ;;" for i, o in enumerate(program.positionals)]
        out += ["                esac"]
    out += ["            fi ;;", "    esac", "}", f"complete -F {function} {program.name}"]
    return "\n".join(out) + "\n"


def zsh(program, programs):
    def values(option):
        if option.is_model():
            return ":_files -g \"*.gguf(-.)\""
        if option.words():
            return f":({' '.join(option.words())})"
        return ":_files" if option.is_file() else ": "

    def safe(text):
        return re.sub(r"([\[\]:\\])", r"\\\1", text)

    out = [f"#compdef {program.name}", f"# completion of {program.name} for zsh, made from {program.name} -h", "_arguments \\"]
    for option in program.flags:
        is_repeated = "may be repeated" in option.text
        others = "" if is_repeated else f"({' '.join(option.names)})"
        for name in option.names:
            ends = "=" if option.value and name.startswith("--") else ""
            spec = f"{others or '*'}{name}{ends}[{safe(installed_names(option.text, programs))}]"
            spec += f":{safe(option.value)}{values(option)}" if option.value else ""
            out.append(f"    {quoted(spec)} \\")
    for i, option in enumerate(program.positionals):
        out.append(f"    {quoted(f'{i + 1}:{safe(option.value)}{values(option)}')} \\")
    out[-1] = out[-1][:-2]
    return "\n".join(out) + "\n"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    prefix, programs = sys.argv[1], [Program(path) for path in sys.argv[2:]]
    words = subprocess.run([sys.argv[2], "--version"], check=True, capture_output=True, text=True).stdout.split()
    date = int(os.environ.get("COMMIT_DATE", "0")) or time.time()
    for program in programs:
        for path, text in ((f"man/man1/{program.name}.1", man(program, programs, words[1], date)),
                           (f"bash-completion/completions/{program.name}", bash(program)),
                           (f"zsh/site-functions/_{program.name}", zsh(program, programs))):
            path = os.path.join(prefix, "share", path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)


main()
