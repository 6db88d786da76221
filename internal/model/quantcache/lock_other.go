//go:build !unix

package quantcache

import "context"

// Lock does nothing where there are no locks: each process makes files for itself.
func Lock(context.Context, string) (release func(), held bool, err error) {
	return func() {}, false, nil
}
