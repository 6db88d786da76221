package embedded

import "go.etcd.io/etcd/server/v3/storage/wal"

// etcd allocates two files of its log in advance. The state of a cluster takes a few
// megabytes: files of 64 MB would be most of its directory.
func init() { wal.SegmentSizeBytes = 8 << 20 }
