/* libnvidia-ml.so.1 with scripted answers, for tests: NVML=ok|mismatch|no-driver|no-permission|hang|lost|ecc|mig|left|desktop|linked|idle.
   idle: persistence mode is off where the file NVML_MODES/N is not there; without NVML_MODES it can't be changed. */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>

typedef struct { int n; int part; } *Device;
static struct { int n; int part; } gpus[2] = {{0, -1}, {1, -1}}, parts[2] = {{0, 0}, {0, 1}};

static int is(const char *what) { const char *said = getenv("NVML"); return said && !strcmp(said, what); }
static int text(char *to, unsigned int size, const char *from) { snprintf(to, size, "%s", from); return 0; }

int nvmlInit_v2(void) {
    if (is("hang")) for (;;) pause();
    return is("mismatch") ? 18 : is("no-driver") ? 9 : is("no-permission") ? 4 : 0;
}
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *to, unsigned int size) { return text(to, size, "580.65.06"); }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return 0; }
int nvmlDeviceGetCount_v2(unsigned int *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, Device *d) {
    if (is("lost") && i == 1) return 15;
    *d = (Device)&gpus[i]; return 0;
}
int nvmlDeviceGetUUID(Device d, char *to, unsigned int size) {
    if (d->part >= 0) { snprintf(to, size, "MIG-0000000%d", d->part); return 0; }
    snprintf(to, size, "GPU-0000000%d", d->n); return 0;
}
int nvmlDeviceGetName(Device d, char *to, unsigned int size) {
    return text(to, size, d->part >= 0 ? "NVIDIA H200 MIG 1g.18gb" : "NVIDIA H200");
}
int nvmlDeviceGetMinorNumber(Device d, unsigned int *n) { *n = d->n; return 0; }
struct pci { char legacy[16]; unsigned int domain, bus, device, id, sub; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(Device d, struct pci *p) {
    memset(p, 0, sizeof *p);
    snprintf(p->bus_id, 32, "00000000:%02X:00.0", d->n ? 0x5c : 0x1b); return 0;
}
struct memory { unsigned int version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(Device d, struct memory *m) {
    m->total = d->part >= 0 ? 18000ULL << 20 : 143771ULL << 20;
    m->reserved = m->free = 0;
    m->used = is("left") && d->n == 0 ? 9000ULL << 20 : 0; return 0;
}
struct process { unsigned int pid; unsigned long long memory; unsigned int gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(Device d, unsigned int *n, struct process *p) {
    unsigned int size = *n;
    *n = is("left") && d->n == 0 ? 1 : 0;
    if (*n > size) return 7;
    if (*n) *p = (struct process){getppid(), 9000ULL << 20, 0xffffffff, 0xffffffff};
    return 0;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device d, unsigned int *n, struct process *p) {
    unsigned int size = *n;
    *n = is("desktop") && d->n == 0 ? 1 : 0;
    if (*n > size) return 7;
    if (*n) *p = (struct process){getppid(), 900ULL << 20, 0xffffffff, 0xffffffff};
    return 0;
}
int nvmlDeviceGetNvLinkState(Device d, unsigned int link, unsigned int *on) {
    if (!is("linked")) return 3;
    *on = link != 1; return link > 3 ? 2 : 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device d, unsigned int link, struct pci *p) {
    memset(p, 0, sizeof *p);
    snprintf(p->bus_id, 32, "00000000:%02X:00.0", d->n ? 0x1b : 0x5c); return 0;
}
int nvmlDeviceGetBrand(Device d, int *b) { *b = 14; return 0; }
int nvmlDeviceGetCudaComputeCapability(Device d, int *major, int *minor) { *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetNumaNodeId(Device d, unsigned int *n) { *n = d->n; return 0; }
static const char *mode(Device d) {
    static char path[4096];
    const char *dir = getenv("NVML_MODES");
    snprintf(path, sizeof path, "%s/%d", dir ? dir : "/nowhere", d->n); return dir ? path : 0;
}
int nvmlDeviceGetPersistenceMode(Device d, int *on) {
    *on = !is("idle") || (mode(d) && !access(mode(d), F_OK)); return 0;
}
int nvmlDeviceSetPersistenceMode(Device d, int on) {
    FILE *file;
    if (!mode(d)) return 4;
    if (!on) return unlink(mode(d)) ? 4 : 0;
    return (file = fopen(mode(d), "w")) ? fclose(file) : 4;
}
int nvmlDeviceGetTotalEccErrors(Device d, int kind, int counter, unsigned long long *n) {
    *n = is("ecc") && d->n == 0 ? 3 : 0; return 0;
}
int nvmlDeviceGetRetiredPagesPendingStatus(Device d, int *on) { *on = 0; return 0; }
int nvmlDeviceGetRemappedRows(Device d, unsigned int *a, unsigned int *b, unsigned int *c, unsigned int *failed) {
    *a = *b = *c = 0; *failed = is("ecc") && d->n == 1; return 0;
}
int nvmlDeviceGetMigMode(Device d, unsigned int *now, unsigned int *next) {
    *now = *next = is("mig") && d->n == 0; return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(Device d, unsigned int *n) { *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device d, unsigned int i, Device *to) {
    if (i > 1) return 6;
    *to = (Device)&parts[i]; return 0;
}
int nvmlDeviceGetGpuInstanceId(Device d, unsigned int *id) { *id = 7 + d->part; return d->part < 0 ? 3 : 0; }
int nvmlDeviceGetComputeInstanceId(Device d, unsigned int *id) { *id = 0; return d->part < 0 ? 3 : 0; }
