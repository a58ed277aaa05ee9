/* tests/gui_windows.c: a GUI program of Windows that uses duet.dll: it computes, and no console, window or process that
 * it did not start appears. Exit code: 0, or the number of the check below that failed. */
#include "runtime.h"

#include <windows.h>

#include <tlhelp32.h>

static BOOL CALLBACK count_window(HWND window, LPARAM n) {
    DWORD owner = 0;
    GetWindowThreadProcessId(window, &owner);
    *(int*)n += owner == GetCurrentProcessId();
    return TRUE;
}

static int count_windows(void) {
    int n = 0;
    EnumWindows(count_window, (LPARAM)&n);
    return n;
}

static int count_children(void) { /* a console would be one: conhost.exe */
    PROCESSENTRY32 process;
    int n = 0;
    BOOL is_one;
    const HANDLE all = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
    process.dwSize = sizeof process;
    is_one = Process32First(all, &process);
    for (; is_one; is_one = Process32Next(all, &process))
        if (process.th32ParentProcessID == GetCurrentProcessId()) n++;
    CloseHandle(all);
    return n;
}

static int n_rows = 0;
static void count_device(void* user, const duet_device_info* device) {
    (void)user, (void)device;
    n_rows++;
}

static int compute(void) {
    duet_model* model = NULL;
    duet_session* session = NULL;
    duet_sampler* sampler = NULL;
    duet_generate_params params = duet_generate_params_default();
    duet_generate_result result = {0};
    int32_t ids[64];
    size_t n = 0;
    int is_good;
    result.struct_size = sizeof result;
    params.max_new_tok = 16;
    is_good = duet_list_devices(count_device, NULL) == DUET_OK && n_rows > 0 &&
              duet_model_open("models/demo.gguf", NULL, &model) == DUET_OK &&
              duet_session_create(model, NULL, &session) == DUET_OK && duet_sampler_create(1, &sampler) == DUET_OK &&
              duet_tokenize(model, "Once upon", 9, DUET_TOKENIZE_ADD_BOS, ids, 64, &n) == DUET_OK &&
              duet_generate(session, sampler, ids, n, &params, NULL, NULL, &result) == DUET_OK &&
              result.n_new_tok == 16;
    duet_sampler_free(sampler);
    duet_session_free(session);
    /* what an error does, too */
    is_good = is_good && duet_model_open("no such file", NULL, &model) == DUET_ERR_IO;
    return is_good;
}

int WINAPI WinMain(HINSTANCE instance, HINSTANCE before, LPSTR command, int show) {
    const int n_windows = count_windows(), n_children = count_children();
    (void)before, (void)command, (void)show;
    if (GetConsoleWindow()) return 1; /* nothing to prove: there was one */
    if (!compute()) return 2;
    if (GetConsoleWindow()) return 3;
    if (count_windows() != n_windows) return 4;
    if (count_children() != n_children) return 5;
    CreateWindowA("STATIC", "", WS_POPUP, 0, 0, 9, 9, NULL, NULL, instance, NULL); /* a window of its own is seen */
    return count_windows() > n_windows ? 0 : 6;
}
