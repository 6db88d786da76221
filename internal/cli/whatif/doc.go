// Package whatif says what another topology would have done with the load of the last hour: it has dynlab play that load, with the
// workers' performance as the cluster has learned it, on the topology that is and on the one that would be.
package whatif
