package ucp

import (
	"testing"
	"unsafe"
)

// TestLayouts compares the images with the offsets that a probe compiled against the
// headers of UCX 1.12.1 to 1.22.0 printed, for amd64 and arm64 alike, and checks that an
// image has room for the longest version of its structure.
func TestLayouts(t *testing.T) {
	var (
		c  contextParams
		ca contextAttr
		w  workerParams
		wa workerAttr
		e  epParams
		m  mapParams
		r  requestParam
		h  amHandlerParam
		a  amRecvParam
	)
	for _, f := range []struct {
		name      string
		got, want uintptr
	}{
		{"ucp_params_t.features", unsafe.Offsetof(c.features), 8},
		{"ucp_params_t.request_size", unsafe.Offsetof(c.requestSize), 16},
		{"ucp_params_t.tag_sender_mask", unsafe.Offsetof(c.tagSenderMask), 40},
		{"ucp_params_t.mt_workers_shared", unsafe.Offsetof(c.mtWorkersShared), 48},
		{"ucp_params_t.estimated_num_eps", unsafe.Offsetof(c.estimatedEPs), 56},
		{"ucp_params_t.estimated_num_ppn", unsafe.Offsetof(c.estimatedPPN), 64},
		{"ucp_params_t.name", unsafe.Offsetof(c.name), 72},
		{"ucp_context_attr_t.thread_mode", unsafe.Offsetof(ca.threadMode), 16},
		{"ucp_context_attr_t.memory_types", unsafe.Offsetof(ca.memoryTypes), 24},
		{"ucp_context_attr_t.name", unsafe.Offsetof(ca.name), 32},
		{"ucp_worker_params_t.thread_mode", unsafe.Offsetof(w.threadMode), 8},
		{"ucp_worker_params_t.cpu_mask", unsafe.Offsetof(w.cpuMask), 16},
		{"ucp_worker_params_t.events", unsafe.Offsetof(w.events), 144},
		{"ucp_worker_params_t.user_data", unsafe.Offsetof(w.userData), 152},
		{"ucp_worker_params_t.event_fd", unsafe.Offsetof(w.eventFD), 160},
		{"ucp_worker_params_t.flags", unsafe.Offsetof(w.flags), 168},
		{"ucp_worker_params_t.name", unsafe.Offsetof(w.name), 176},
		{"ucp_worker_params_t.client_id", unsafe.Offsetof(w.clientID), 192},
		{"ucp_worker_attr_t.address_flags", unsafe.Offsetof(wa.addressFlags), 12},
		{"ucp_worker_attr_t.address", unsafe.Offsetof(wa.address), 16},
		{"ucp_worker_attr_t.address_length", unsafe.Offsetof(wa.addressLength), 24},
		{"ucp_worker_attr_t.name", unsafe.Offsetof(wa.name), 40},
		{"ucp_worker_attr_t.max_debug_string", unsafe.Offsetof(wa.maxDebugString), 72},
		{"ucp_ep_params_t.address", unsafe.Offsetof(e.address), 8},
		{"ucp_ep_params_t.err_mode", unsafe.Offsetof(e.errMode), 16},
		{"ucp_ep_params_t.err_handler.cb", unsafe.Offsetof(e.errHandler), 24},
		{"ucp_ep_params_t.err_handler.arg", unsafe.Offsetof(e.errArg), 32},
		{"ucp_ep_params_t.user_data", unsafe.Offsetof(e.userData), 40},
		{"ucp_ep_params_t.flags", unsafe.Offsetof(e.flags), 48},
		{"ucp_ep_params_t.sockaddr", unsafe.Offsetof(e.sockAddr), 56},
		{"ucp_ep_params_t.conn_request", unsafe.Offsetof(e.connRequest), 72},
		{"ucp_ep_params_t.local_sockaddr", unsafe.Offsetof(e.localAddr), 88},
		{"ucp_mem_map_params_t.address", unsafe.Offsetof(m.address), 8},
		{"ucp_mem_map_params_t.length", unsafe.Offsetof(m.length), 16},
		{"ucp_mem_map_params_t.flags", unsafe.Offsetof(m.flags), 24},
		{"ucp_mem_map_params_t.prot", unsafe.Offsetof(m.prot), 28},
		{"ucp_mem_map_params_t.memory_type", unsafe.Offsetof(m.memType), 32},
		{"ucp_mem_map_params_t.exported_memh_buffer", unsafe.Offsetof(m.exported), 40},
		{"ucp_request_param_t.flags", unsafe.Offsetof(r.flags), 4},
		{"ucp_request_param_t.request", unsafe.Offsetof(r.request), 8},
		{"ucp_request_param_t.cb", unsafe.Offsetof(r.callback), 16},
		{"ucp_request_param_t.datatype", unsafe.Offsetof(r.datatype), 24},
		{"ucp_request_param_t.user_data", unsafe.Offsetof(r.userData), 32},
		{"ucp_request_param_t.reply_buffer", unsafe.Offsetof(r.reply), 40},
		{"ucp_request_param_t.memory_type", unsafe.Offsetof(r.memType), 48},
		{"ucp_request_param_t.recv_info", unsafe.Offsetof(r.recvInfo), 56},
		{"ucp_request_param_t.memh", unsafe.Offsetof(r.memh), 64},
		{"ucp_am_handler_param_t.id", unsafe.Offsetof(h.id), 8},
		{"ucp_am_handler_param_t.flags", unsafe.Offsetof(h.flags), 12},
		{"ucp_am_handler_param_t.cb", unsafe.Offsetof(h.cb), 16},
		{"ucp_am_handler_param_t.arg", unsafe.Offsetof(h.arg), 24},
		{"ucp_am_recv_param_t.reply_ep", unsafe.Offsetof(a.replyEP), 8},
	} {
		if f.got != f.want {
			t.Errorf("%s is at offset %d, want %d", f.name, f.got, f.want)
		}
	}
	for _, s := range []struct {
		name         string
		got, longest uintptr // of releases 1.12 to 1.22
	}{
		{"ucp_params_t", unsafe.Sizeof(c), 88},
		{"ucp_context_attr_t", unsafe.Sizeof(ca), 72},
		{"ucp_worker_params_t", unsafe.Sizeof(w), 200},
		{"ucp_worker_attr_t", unsafe.Sizeof(wa), 80},
		{"ucp_ep_params_t", unsafe.Sizeof(e), 104},
		{"ucp_mem_map_params_t", unsafe.Sizeof(m), 48},
		{"ucp_request_param_t", unsafe.Sizeof(r), 96},
		{"ucp_am_handler_param_t", unsafe.Sizeof(h), 32},
	} {
		if s.got < s.longest+128 {
			t.Errorf("image of %s has %d bytes, the structure up to %d: too little room for later releases", s.name, s.got, s.longest)
		}
	}
	if n := unsafe.Sizeof(a); n != 16 {
		t.Errorf("ucp_am_recv_param_t has %d bytes", n)
	}
}

func TestStatusOfARegister(t *testing.T) {
	// Only the lowest byte counts.
	if got := statusOf(0xdead_bee7); got != ConnectionReset {
		t.Errorf("statusOf() = %d", got)
	}
	if _, err := request(^uintptr(24)); err != ConnectionReset { // (uintptr)-25
		t.Errorf("request(-25) = %v", err)
	}
	if r, err := request(0x7f00_0000_1000); err != nil || r.done() {
		t.Errorf("request(pointer) = %v, %v", r, err)
	}
	if r, err := request(0); err != nil || !r.done() {
		t.Errorf("request(0) = %v, %v", r, err)
	}
}
