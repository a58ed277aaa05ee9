// runtime/commit.cpp: which commit the library was built from. A file of its own, because the build compiles it again
// after each commit. Owns: that text. Next: runtime/model.cpp (duet_build_info).
#include "calls.h"

#if !defined(DUET_COMMIT)
#define DUET_COMMIT "unknown"
#endif

const char* duet::build_commit() { return DUET_COMMIT; }
