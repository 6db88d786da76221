// Attack runs a real cluster of processes on this machine, attacks it and takes parts of
// it away, and reports how a client fares meanwhile who asks for one token every 100 ms.
//
//	go run ./internal/lab/attack -write docs/reliability.md
//	go run ./internal/lab/attack -chats -trace /tmp/chats.jsonl
//
// The cluster has one prefill and two decode workers, each in a dynamod of its own, and
// an etcd and a NATS server of its own, all on loopback. Attackers, the client that is
// measured and clients whose streams are compared word for word come from different
// loopback addresses. Each attack has an end in time and in number. The exit status is 1
// if a request of the measured client failed, a stream was wrong, an attacker got in, a
// process was lost, or the bound on the latency (-bound) was passed.
//
// With -chats nothing is attacked: chats of many turns compare the routing policies of one
// prefill and four decode workers with two frontends (docs/routing.md), then workers, NATS
// and a frontend are taken away and come back while chats go on.
//
// It is laboratory code: neither program links it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

func main() {
	if serveStore() {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	bin := flag.String("bin", "bin", "directory of dynctl and dynamod")
	seconds := flag.Int("seconds", 15, "how long each attack lasts")
	only := flag.String("only", "", "regular expression of the names of attacks to run; empty runs all")
	write := flag.String("write", "", "file whose table is replaced by the results")
	bound := flag.Duration("bound", time.Second, "largest 99th percentile of the latency of the measured client")
	chats := flag.Bool("chats", false, "attack nothing: compare routing policies by chats, and take parts away while chats go on")
	trace := flag.String("trace", "", "with -chats: file for the trace of the chats, for dynlab route")
	keep := flag.Bool("keep", false, "keep the directory with state and logs")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	if *chats {
		return runChats(ctx, *bin, *trace, *keep)
	}
	c, err := startCluster(ctx, *bin, *keep, attacked)
	if err != nil {
		return err
	}
	defer c.stop()
	r := &report{bound: *bound, seconds: *seconds}
	for _, a := range append(append(attacks(), faults()...), diskAttacks()...) {
		if !pattern.MatchString(a.name) {
			continue
		}
		res := c.try(ctx, a, time.Duration(*seconds)*time.Second)
		r.add(res)
		fmt.Println(res.line())
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if *write != "" {
		if err := r.write(*write); err != nil {
			return err
		}
	}
	if !r.ok() {
		return errors.New("the service did not withstand the attack: see the report above")
	}
	return nil
}
