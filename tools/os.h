// tools/os.h: what the programs need of the operating system and of the C library's POSIX half, in namespace `os`:
// the command line, files by UTF-8 paths, interrupts, memory, and the terminal as a source of keys.
// Must not know: what the programs do. os_posix.h (Linux, macOS) and os_windows.h have the same functions; what each
// does stands in os_posix.h.
#pragma once
#ifdef _WIN32
#include "os_windows.h"
#else
#include "os_posix.h"
#endif
