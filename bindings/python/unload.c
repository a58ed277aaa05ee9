/* bindings/python/unload.c: what a compiler's start files do when a shared library is unloaded, and those of zig leave
 * out: destructors of its static objects run then, not at the program's end, when they are gone. */
extern void* __dso_handle;
void __cxa_finalize(void* library);

__attribute__((destructor)) static void unload(void) { __cxa_finalize(&__dso_handle); }
