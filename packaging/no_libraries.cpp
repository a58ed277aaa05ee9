// packaging/no_libraries.cpp: for the fully static run, which opens no library: what dlopen of a static program needs
// (the C library it was linked with, as a file) is not on other machines. It computes on the CPU, and says that there
// is no driver.
extern "C" {
void* dlopen(const char*, int) { return nullptr; }
void* dlsym(void*, const char*) { return nullptr; }
int dlclose(void*) { return 0; }
char* dlerror() {
    static char text[] = "a static program opens no libraries";
    return text;
}
}
