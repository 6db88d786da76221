// An NVML for tests of the binding: three GPUs, of which the second tells almost
// nothing and the third is broken.
// With -DWITH_NVML_H the compiler compares the prototypes with those of NVIDIA's header.
#include <string.h>

#ifdef WITH_NVML_H
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#else
typedef int nvmlReturn_t;
typedef struct gpu *nvmlDevice_t;
typedef int nvmlClockType_t, nvmlTemperatureSensors_t;
typedef struct { unsigned pid; unsigned long long usedGpuMemory; unsigned gpuInstanceId, computeInstanceId; } nvmlProcessInfo_t;
typedef struct { char busIdLegacy[16]; unsigned domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } nvmlPciInfo_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
#endif

#ifndef INIT_RESULT
#define INIT_RESULT 0
#endif
static int gpus[2];
#define FN __attribute__((visibility("default"))) nvmlReturn_t
#define FIRST do { if ((void *)d != (void *)&gpus[0]) return (nvmlReturn_t)3; } while (0)

FN nvmlInit_v2(void) { return (nvmlReturn_t)INIT_RESULT; }
FN nvmlShutdown(void) { return 0; }
#ifndef COUNT
#define COUNT 3
#endif
FN nvmlDeviceGetCount_v2(unsigned *n) { *n = COUNT; return 0; }
FN nvmlSystemGetDriverVersion(char *v, unsigned n) { strncpy(v, "580.65.06", n); return 0; }
FN nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return 0; }
FN nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *d) {
	if (i > 1) return (nvmlReturn_t)15;
	*d = (nvmlDevice_t)&gpus[i];
	return 0;
}
FN nvmlDeviceGetName(nvmlDevice_t d, char *name, unsigned n) { strncpy(name, "NVIDIA H200", n); return 0; }
FN nvmlDeviceGetUUID(nvmlDevice_t d, char *uuid, unsigned n) { FIRST; strncpy(uuid, "GPU-5a1d", n); return 0; }
FN nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *p) { FIRST; strcpy(p->busId, "00000000:3B:00.0"); return 0; }
FN nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m) {
	FIRST;
	if (m->version != 0x2000028) return (nvmlReturn_t)25;
	m->total = 150ull << 30, m->used = 20ull << 30, m->reserved = 1ull << 30, m->free = 129ull << 30;
	return 0;
}
FN nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u) { FIRST; u->gpu = 87, u->memory = 43; return 0; }
FN nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *mw) { FIRST; *mw = 612500; return 0; }
FN nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned *mw) { FIRST; *mw = 700000; return 0; }
FN nvmlDeviceGetClockInfo(nvmlDevice_t d, nvmlClockType_t t, unsigned *mhz) { FIRST; *mhz = t == 1 ? 1785 : 1; return 0; }
FN nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, nvmlClockType_t t, unsigned *mhz) { FIRST; *mhz = t == 1 ? 1980 : 1; return 0; }
FN nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t s, unsigned *c) { FIRST; *c = s == 0 ? 61 : 1; return 0; }
#ifndef OLD
#ifndef PROCESSES
#define PROCESSES 2
#endif
FN nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *n, nvmlProcessInfo_t *p) {
	FIRST;
	if (*n < PROCESSES) { *n = PROCESSES; return (nvmlReturn_t)7; }
	*n = PROCESSES;
	for (unsigned i = 0; i < PROCESSES; i++) p[i].pid = 4711 + i, p[i].usedGpuMemory = i == 0 ? 20ull << 30 : -1ull;
	return 0;
}
FN nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *bits) { FIRST; *bits = 1 | 4 | 0x20; return 0; }
#endif
