// Package call has the verb that calls an endpoint over the request plane.
package call
