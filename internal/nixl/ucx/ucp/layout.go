package ucp

// Images of libucp's structures. A field mask says which fields are set, later releases
// append fields only, and amd64 and arm64 have the same offsets; layout_test.go holds
// the table that was taken from the headers of releases 1.12 to 1.22. The room at the end
// is for fields of later releases, which are never looked at.

type room [32]uint64

// Bits of field masks, features and flags.
const (
	featureRMA    = 1 << 1
	featureWakeup = 1 << 4
	featureAM     = 1 << 6

	paramFeatures        = 1 << 0
	paramMTWorkersShared = 1 << 5

	workerParamThreadMode = 1 << 0
	workerAttrAddress     = 1 << 1 // and its length
	threadSingle          = 0

	contextAttrMemoryTypes = 1 << 2

	epParamAddress  = 1 << 0
	epParamErrMode  = 1 << 1
	epParamHandler  = 1 << 2
	errModePeer     = 1
	closeForce      = 1
	mapParamAddress = 1 << 0
	mapParamLength  = 1 << 1

	opFlags   = 1 << 4
	opMemh    = 1 << 8
	amEager   = 1 << 1
	amWhole   = 1 << 0
	amFieldID = 1 << 0
	amFlags   = 1 << 1
	amCB      = 1 << 2
	amArg     = 1 << 3

	recvRendezvous = 1 << 17
)

// contextParams is ucp_params_t.
type contextParams struct {
	mask            uint64
	features        uint64
	requestSize     uint64
	requestInit     uintptr
	requestCleanup  uintptr
	tagSenderMask   uint64
	mtWorkersShared int32
	_               int32
	estimatedEPs    uint64
	estimatedPPN    uint64
	name            uintptr
	_               room
}

// contextAttr is ucp_context_attr_t.
type contextAttr struct {
	mask        uint64
	requestSize uint64
	threadMode  int32
	_           int32
	memoryTypes uint64
	name        [32]byte
	_           room
}

// workerParams is ucp_worker_params_t.
type workerParams struct {
	mask        uint64
	threadMode  int32
	_           int32
	cpuMask     [16]uint64
	events      uint32
	_           uint32
	userData    uintptr
	eventFD     int32
	_           int32
	flags       uint64
	name        uintptr
	amAlignment uint64
	clientID    uint64
	_           room
}

// workerAttr is ucp_worker_attr_t.
type workerAttr struct {
	mask           uint64
	threadMode     int32
	addressFlags   uint32
	address        uintptr
	addressLength  uint64
	maxAMHeader    uint64
	name           [32]byte
	maxDebugString uint64
	_              room
}

// epParams is ucp_ep_params_t.
type epParams struct {
	mask        uint64
	address     uintptr
	errMode     int32
	_           int32
	errHandler  uintptr
	errArg      uintptr
	userData    uintptr
	flags       uint32
	_           uint32
	sockAddr    uintptr
	sockAddrLen uint32
	_           uint32
	connRequest uintptr
	name        uintptr
	localAddr   [2]uint64
	_           room
}

// mapParams is ucp_mem_map_params_t.
type mapParams struct {
	mask     uint64
	address  uintptr
	length   uint64
	flags    uint32
	prot     uint32
	memType  int32
	_        int32
	exported uintptr
	_        room
}

// requestParam is ucp_request_param_t.
type requestParam struct {
	mask       uint32
	flags      uint32
	request    uintptr
	callback   uintptr
	datatype   uint64
	userData   uintptr
	reply      uintptr
	memType    int32
	_          int32
	recvInfo   uintptr
	memh       uintptr
	remoteType uint64
	remote     uintptr
	remoteN    uint64
	_          room
}

// amHandlerParam is ucp_am_handler_param_t.
type amHandlerParam struct {
	mask  uint64
	id    uint32
	flags uint32
	cb    uintptr
	arg   uintptr
	_     room
}

// amRecvParam is ucp_am_recv_param_t, made by the library.
type amRecvParam struct {
	attr    uint64
	replyEP uintptr
}
