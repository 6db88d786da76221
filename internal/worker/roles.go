package worker

import (
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/worker/decode"
	"github.com/dynctl/dynctl/internal/worker/encode"
	"github.com/dynctl/dynctl/internal/worker/prefill"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// roles are the roles that a worker can take. Another one is a package of its own and a
// line here.
var roles = map[cluster.Role]role.Kind{
	cluster.RolePrefill: prefill.Kind,
	cluster.RoleDecode:  decode.Kind,
	cluster.RoleEncode:  encode.Kind,
}
