// A libnvrtc for tests of the binding: functions with the prototypes of nvrtc.h. The PTX
// that it makes tells what it was given, and a source with the word "wrong" is one that
// does not compile.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef MAJOR
#define MAJOR 12
#endif
#ifndef RESULT
#define RESULT 0
#endif
#define FN __attribute__((visibility("default")))

struct program { char *source, *name, ptx[4096], log[256]; int headers; };

FN const char *nvrtcGetErrorString(int r) { return r == 6 ? "NVRTC_ERROR_COMPILATION" : r == 11 ? "NVRTC_ERROR_INTERNAL_ERROR" : 0; }
FN int nvrtcVersion(int *major, int *minor) { *major = MAJOR, *minor = 4; return RESULT; }
#ifndef WITHOUT_PROGRAMS
FN int nvrtcCreateProgram(struct program **p, const char *source, const char *name, int n, const char *const *headers, const char *const *names) {
	*p = calloc(1, sizeof **p);
	(*p)->source = strdup(source), (*p)->name = strdup(name), (*p)->headers = n;
	for (int i = 0; i < n; i++) sprintf((*p)->ptx + strlen((*p)->ptx), "// %s: %s\n", names[i], headers[i]);
	return 0;
}
FN int nvrtcCompileProgram(struct program *p, int n, const char *const *options) {
	const char *arch = "52";
	if (strstr(p->source, "wrong")) {
		sprintf(p->log, "%s(1): error: it is wrong\n", p->name);
		return 6;
	}
	for (int i = 0; i < n; i++) {
		sprintf(p->ptx + strlen(p->ptx), "// option %s\n", options[i]);
		if (strstr(options[i], "compute_")) arch = strstr(options[i], "compute_") + 8;
	}
	if (strstr(p->source, "doubtful")) sprintf(p->log, "%s(1): warning: it is doubtful\n", p->name);
	sprintf(p->ptx + strlen(p->ptx), ".version %d.4\n.target sm_%s\n%s", MAJOR - 4, arch, strstr(p->source, ".visible") ? strstr(p->source, ".visible") : "");
	return 0;
}
FN int nvrtcGetPTXSize(struct program *p, size_t *n) { *n = strlen(p->ptx) + 1; return 0; }
FN int nvrtcGetPTX(struct program *p, char *to) { strcpy(to, p->ptx); return 0; }
FN int nvrtcGetProgramLogSize(struct program *p, size_t *n) { *n = strlen(p->log) + 1; return 0; }
FN int nvrtcGetProgramLog(struct program *p, char *to) { strcpy(to, p->log); return 0; }
FN int nvrtcDestroyProgram(struct program **p) {
	free((*p)->source), free((*p)->name), free(*p);
	*p = 0;
	return 0;
}
#endif
#ifndef WITHOUT_ARCHITECTURES
FN int nvrtcGetNumSupportedArchs(int *n) { *n = 4; return 0; }
FN int nvrtcGetSupportedArchs(int *archs) {
	const int all[] = {75, 80, 89, 90};
	memcpy(archs, all, sizeof all);
	return 0;
}
#endif
