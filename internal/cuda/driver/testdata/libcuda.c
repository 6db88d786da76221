// A libcuda for tests of the binding: functions with the prototypes of cuda.h, over
// memory of the host. Work runs at once, except while a stream is captured. It checks
// what a binding can get wrong: which context is current on the thread, widths and order
// of arguments, and what structures hold.
//
// With -DWITH_CUDA_H the compiler compares the prototypes with those of NVIDIA's header.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WITH_CUDA_H
#include <cuda.h>
#else
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct ctx *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct mod *CUmodule;
typedef struct fn *CUfunction;
typedef struct list *CUgraph;
typedef struct list2 *CUgraphExec;
typedef int CUdevice_attribute, CUfunction_attribute, CUjit_option, CUstreamCaptureMode;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle;
typedef struct { int id; char pad[4]; struct { int programmaticStreamSerializationAllowed; char pad[60]; } value; } CUlaunchAttribute;
typedef struct {
	unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
	CUstream hStream;
	CUlaunchAttribute *attrs;
	unsigned numAttrs;
} CUlaunchConfig;
#endif

#ifndef INIT_RESULT
#define INIT_RESULT 0
#endif
#ifndef VERSION
#define VERSION 12040
#endif
#ifndef DEVICES
#define DEVICES 2
#endif
#ifndef WITH_CUDA_H
typedef struct { unsigned long long opaque[16]; } CUtensorMap;
typedef int CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
#endif
#define TOTAL (64ull << 20)
#define FN __attribute__((visibility("default"))) CUresult
#define NEED(condition, result) do { if (!(condition)) return (CUresult)(result); } while (0)
#define CONTEXT NEED(current > 0 && current <= DEVICES && retained[current - 1], 201)

enum { INVALID = 1, NOMEM = 2, NOT_FOUND = 500, HANDLE = 400 };

static __thread long current; // device + 1 of the thread's context
static int retained[8], initialized;
static unsigned long long used;
enum { BLOCKS = 64 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of used and blocks
static struct block { CUdeviceptr p; size_t n; long device; } blocks[BLOCKS]; // what is allocated: freed memory is never asked

// Work is copied into a capture and runs later.
struct op { int kind; unsigned char *dst; const unsigned char *src; size_t n; unsigned char value; float a; };
struct list { struct op ops[64]; int n; struct stream_ *joined[4]; int streams; };
struct stream_ { long device; struct list *capture; };
#define STREAM(s) ((struct stream_ *)(s))
#define GOOD_STREAM(s) NEED((s) && STREAM(s)->device == current, HANDLE)

static void run(struct op o) {
	switch (o.kind) {
	case 0: memset(o.dst, o.value, o.n); break;
	case 1: memmove(o.dst, o.src, o.n); break;
	case 2: for (size_t i = 0; i < o.n; i++) ((float *)o.dst)[i] += o.a * ((const float *)o.src)[i]; break;
	}
}

static CUresult put(CUstream s, struct op o) {
	if (STREAM(s)->capture) STREAM(s)->capture->ops[STREAM(s)->capture->n++] = o;
	else run(o);
	return 0;
}

FN cuInit(unsigned flags) { NEED(flags == 0, INVALID); initialized = INIT_RESULT == 0; return (CUresult)INIT_RESULT; }
FN cuDriverGetVersion(int *v) { *v = VERSION; return 0; }
#if VERSION >= 12000
FN cuDeviceGetCount(int *n) { NEED(initialized, 3); *n = DEVICES; return 0; }
FN cuDeviceGet(CUdevice *d, int ordinal) { NEED(ordinal < DEVICES, 101); *d = ordinal; return 0; }
FN cuDeviceGetName(char *name, int len, CUdevice d) { snprintf(name, len, "Test Device %d", d); return 0; }
FN cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice d) { memset(uuid, 0x10 + d, 16); return 0; }
FN cuDeviceTotalMem_v2(size_t *n, CUdevice d) { *n = TOTAL; return 0; }
FN cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) {
	switch ((int)a) {
	case 16: *v = 132; return 0;
	case 18: *v = 0; return 0;
	case 20: *v = d == 1 ? 3 : 0; return 0;
	case 33: *v = 0x3b + d; return 0;
	case 34: *v = 0; return 0;
	case 38: *v = 50 << 20; return 0;
	case 50: *v = 1; return 0;
	case 75: *v = 9; return 0;
	case 76: *v = 0; return 0;
	case 97: *v = 227 << 10; return 0;
	}
	return (CUresult)INVALID;
}
FN cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { NEED(d < DEVICES, 101); retained[d]++; *c = (CUcontext)(long)(d + 1); return 0; }
FN cuDevicePrimaryCtxRelease_v2(CUdevice d) { NEED(retained[d] > 0, 201); retained[d]--; return 0; }
FN cuCtxSetCurrent(CUcontext c) { current = (long)c; CONTEXT; return 0; }

FN cuMemGetInfo_v2(size_t *free, size_t *total) { CONTEXT; *total = TOTAL; *free = TOTAL - used; return 0; }
FN cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
	CONTEXT;
	NEED(n <= TOTAL - used, NOMEM);
	CUresult result = (CUresult)NOMEM;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < BLOCKS && result; i++) {
		if (blocks[i].p) continue;
		blocks[i] = (struct block){.p = (CUdeviceptr)(uintptr_t)malloc(n), .n = n, .device = current};
		used += n, *p = blocks[i].p, result = 0;
	}
	pthread_mutex_unlock(&lock);
	return result;
}
// Finds a block of the current device, and forgets it if that is asked for.
static int owned(CUdeviceptr p, int forget) {
	int found = 0;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < BLOCKS && p && !found; i++) {
		if (blocks[i].p != p || blocks[i].device != current) continue;
		if (forget) used -= blocks[i].n, blocks[i].p = 0;
		found = 1;
	}
	pthread_mutex_unlock(&lock);
	return found;
}
FN cuMemFree_v2(CUdeviceptr p) {
	CONTEXT;
	NEED(owned(p, 1), INVALID);
	free((void *)(uintptr_t)p);
	return 0;
}
FN cuMemHostAlloc(void **p, size_t n, unsigned flags) { CONTEXT; NEED(flags == 1, INVALID); *p = malloc(n); return 0; }
FN cuMemFreeHost(void *p) { CONTEXT; free(p); return 0; }
FN cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream s) {
	CONTEXT; GOOD_STREAM(s);
	return put(s, (struct op){.kind = 0, .dst = (void *)(uintptr_t)dst, .value = value, .n = n});
}
FN cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s) {
	CONTEXT; GOOD_STREAM(s);
	return put(s, (struct op){.kind = 1, .dst = (void *)(uintptr_t)dst, .src = (void *)(uintptr_t)src, .n = n});
}
FN cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream s) {
	CONTEXT; GOOD_STREAM(s);
	return put(s, (struct op){.kind = 1, .dst = (void *)(uintptr_t)dst, .src = src, .n = n});
}
FN cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream s) {
	CONTEXT; GOOD_STREAM(s);
	return put(s, (struct op){.kind = 1, .dst = dst, .src = (void *)(uintptr_t)src, .n = n});
}

static int peers[8][8];
FN cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer) { NEED(d < DEVICES && peer < DEVICES, 101); *can = d != peer; return 0; }
FN cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
	CONTEXT;
	NEED((long)peer > 0 && (long)peer <= DEVICES && retained[(long)peer - 1] && (long)peer != current && flags == 0, INVALID);
	NEED(!peers[current - 1][(long)peer - 1]++, 704);
	return 0;
}
FN cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream s) {
	CONTEXT; GOOD_STREAM(s);
	NEED(retained[(long)to - 1] && retained[(long)from - 1] && (current == (long)to || current == (long)from), 201);
	return put(s, (struct op){.kind = 1, .dst = (void *)(uintptr_t)dst, .src = (void *)(uintptr_t)src, .n = n});
}

// A handle holds an address and a pattern behind it; opening checks both.
FN cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr p) {
	CONTEXT;
	memcpy(h, &p, 8);
	for (int i = 8; i < 64; i++) ((unsigned char *)h)[i] = i * 3 + 1;
	return 0;
}
FN cuIpcOpenMemHandle_v2(CUdeviceptr *p, CUipcMemHandle h, unsigned flags) {
	CONTEXT;
	NEED(flags == 1, INVALID);
	for (int i = 8; i < 64; i++) NEED(((unsigned char *)&h)[i] == (unsigned char)(i * 3 + 1), INVALID);
	memcpy(p, &h, 8);
	return 0;
}
FN cuIpcCloseMemHandle(CUdeviceptr p) { CONTEXT; NEED(owned(p, 0), INVALID); return 0; }

FN cuStreamCreateWithPriority(CUstream *s, unsigned flags, int priority) {
	CONTEXT;
	NEED(flags == 1 && priority >= -5 && priority <= 5, INVALID);
	struct stream_ *n = calloc(1, sizeof *n);
	n->device = current, *s = (CUstream)n;
	return 0;
}
FN cuStreamDestroy_v2(CUstream s) { CONTEXT; GOOD_STREAM(s); free(s); return 0; }
FN cuStreamSynchronize(CUstream s) { CONTEXT; GOOD_STREAM(s); NEED(!STREAM(s)->capture, 900); return 0; }
// An event says once that it is not ready. What is recorded comes half a millisecond after
// what was recorded before.
struct event_ { int left, timing; float at; struct list *capture; }; // left: 0 not recorded, 2 not asked yet
#define EVENT(e) ((struct event_ *)(e))
static float now;
FN cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
	CONTEXT; GOOD_STREAM(s);
	struct list *l = EVENT(e)->capture;
	NEED(flags == 0 && (l || EVENT(e)->left > 0), INVALID);
	if (!l || STREAM(s)->capture) { NEED(STREAM(s)->capture == l, 905); return 0; }
	NEED(l->streams < 4, 901); // the stream joins the capture
	return STREAM(s)->capture = l, l->joined[l->streams++] = STREAM(s), 0;
}
FN cuEventCreate(CUevent *e, unsigned flags) {
	CONTEXT;
	NEED(flags == 2 || flags == 0, INVALID);
	struct event_ *n = calloc(1, sizeof *n);
	n->timing = flags == 0, *e = (CUevent)n;
	return 0;
}
FN cuEventDestroy_v2(CUevent e) { CONTEXT; free(e); return 0; }
FN cuEventRecord(CUevent e, CUstream s) { CONTEXT; GOOD_STREAM(s); EVENT(e)->left = 2, EVENT(e)->at = now += 0.5f, EVENT(e)->capture = STREAM(s)->capture; return 0; }
FN cuEventQuery(CUevent e) { CONTEXT; NEED(EVENT(e)->left-- < 2, 600); EVENT(e)->left = 1; return 0; }
FN cuEventSynchronize(CUevent e) { CONTEXT; NEED(EVENT(e)->left > 0, INVALID); return 0; }
FN cuEventElapsedTime(float *ms, CUevent start, CUevent end) {
	CONTEXT;
	NEED(EVENT(start)->timing && EVENT(end)->timing && EVENT(start)->left > 0 && EVENT(end)->left > 0, HANDLE);
	*ms = EVENT(end)->at - EVENT(start)->at;
	return 0;
}

static int marker;
#define AXPY ((CUfunction)&marker)
FN cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned n, CUjit_option *options, void **values) {
	CONTEXT;
	NEED(n == 2 && (int)options[0] == 5 && (int)options[1] == 6 && (size_t)values[1] >= 1024, INVALID);
	if (!strstr(image, ".version")) {
		strcpy(values[0], "ptxas fatal: no .version in line 1\n");
		return (CUresult)218;
	}
	*m = malloc(1);
	return 0;
}
FN cuModuleUnload(CUmodule m) { CONTEXT; free(m); return 0; }
FN cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) { CONTEXT; NEED(!strcmp(name, "axpy"), NOT_FOUND); *f = AXPY; return 0; }
FN cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) {
	CONTEXT;
	NEED(f == AXPY, HANDLE);
	switch ((int)a) {
	case 0: *v = 1024; return 0;
	case 1: *v = 0; return 0;
	case 3: *v = 0; return 0;
	case 4: *v = 10; return 0;
	case 6: *v = 90; return 0;
	}
	return (CUresult)INVALID;
}
FN cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) { CONTEXT; NEED(f == AXPY && a == 8 && v == 32 << 10, INVALID); return 0; }
FN cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s, void **params, void **extra) {
	CONTEXT; GOOD_STREAM(s);
	NEED(f == AXPY && gx && gy == 1 && gz == 1 && bx && by == 1 && bz == 1 && !shared && !params, INVALID);
	NEED((size_t)extra[0] == 1 && (size_t)extra[2] == 2 && *(size_t *)extra[3] == 24 && !extra[4], INVALID);
	struct { float *dst; const float *src; int n; float a; } arg;
	memcpy(&arg, extra[1], 24);
	NEED((long)gx * bx >= arg.n, INVALID);
	return put(s, (struct op){.kind = 2, .dst = (void *)arg.dst, .src = (void *)arg.src, .n = arg.n, .a = arg.a});
}
FN cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
	NEED(c->numAttrs == 1 && (int)c->attrs->id == 6 && c->attrs->value.programmaticStreamSerializationAllowed == 1, INVALID);
	return cuLaunchKernel(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes, c->hStream, params, extra);
}

#ifndef WITHOUT_TENSOR_MAPS
// A map holds the sum of all that it was made of, and a pattern behind it.
FN cuTensorMapEncodeTiled(CUtensorMap *m, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
	CONTEXT;
	NEED((uintptr_t)m % 64 == 0 && (int)type == 9 && rank == 2 && (int)interleave == 0 && (int)swizzle == 3 && (int)promotion == 3 && (int)fill == 0, INVALID);
	NEED(steps[0] == 1 && steps[1] == 1, INVALID);
	unsigned char *b = (unsigned char *)m;
	cuuint64_t v[6] = {(uintptr_t)address, sizes[1], sizes[0], strides[0], box[1], box[0]};
	for (int i = 0; i < 128; i++) b[i] = i * 5 + 3;
	memcpy(b, v, sizeof v);
	return 0;
}
#endif

FN cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode) {
	CONTEXT; GOOD_STREAM(s);
	NEED(mode == 2 && !STREAM(s)->capture, INVALID);
	STREAM(s)->capture = calloc(1, sizeof(struct list));
	return 0;
}
FN cuStreamEndCapture(CUstream s, CUgraph *g) {
	CONTEXT; GOOD_STREAM(s);
	struct list *l = STREAM(s)->capture;
	for (*g = (CUgraph)l; l->streams > 0;) l->joined[--l->streams]->capture = 0;
	STREAM(s)->capture = 0;
	return 0;
}
FN cuGraphInstantiateWithFlags(CUgraphExec *e, CUgraph g, unsigned long long flags) {
	CONTEXT;
	NEED(flags == 0, INVALID);
	*e = malloc(sizeof(struct list));
	memcpy(*e, g, sizeof(struct list));
	return 0;
}
FN cuGraphDestroy(CUgraph g) { CONTEXT; free(g); return 0; }
FN cuGraphExecDestroy(CUgraphExec e) { CONTEXT; free(e); return 0; }
FN cuGraphLaunch(CUgraphExec e, CUstream s) {
	CONTEXT; GOOD_STREAM(s);
	struct list *l = (struct list *)e;
	for (int i = 0; i < l->n; i++) run(l->ops[i]);
	return 0;
}
#endif
