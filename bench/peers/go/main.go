// Command asynq-subject runs asynq for the benchmarks: one server with 100 goroutines for handlers, no retention.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sys/unix"
)

type parameters struct {
	URL         string  `json:"url"`
	Jobs        int     `json:"jobs"`
	Concurrency int     `json:"concurrency"`
	Mode        string  `json:"mode"`
	Callers     int     `json:"callers"`
	Payload     int     `json:"payload"`
	Delay       float64 `json:"delay"`
	Pause       float64 `json:"pause"`
	Announce    bool    `json:"announce"`
	After       float64 `json:"after"`
	Span        float64 `json:"span"`
	Leave       bool    `json:"leave"`
}

type report struct {
	Jobs        int            `json:"jobs"`
	Seconds     float64        `json:"seconds"`
	CPUSeconds  float64        `json:"cpu_seconds"`
	Version     string         `json:"version"`
	Settings    map[string]any `json:"settings"`
	Unsupported string         `json:"unsupported,omitempty"`
	Delays      []float64      `json:"values_ms"`
}

const fillCallers = 50

// A payload that begins with it holds the monotonic time, in ns, at which its job was enqueued or becomes due.
const stamp = 't'

// How often an idle server looks for tasks, and any server for scheduled ones that are due. Installed: 1 s and 5 s.
const (
	taskCheck    = 5 * time.Millisecond
	delayedCheck = 100 * time.Millisecond
)

func main() {
	var given parameters
	if err := json.Unmarshal([]byte(os.Args[2]), &given); err != nil {
		fail(err)
	}
	if given.Payload == 0 {
		given.Payload = 32
	}
	connection, err := asynq.ParseRedisURI(given.URL)
	if err != nil {
		fail(err)
	}
	var found report
	switch os.Args[1] {
	case "fill":
		given.Mode, given.Callers = "concurrent", fillCallers
		found = enqueue(connection, given)
	case "enqueue":
		if given.Mode == "bulk" {
			found = report{Unsupported: "no call that enqueues many"}
		} else {
			found = enqueue(connection, given)
		}
	case "schedule":
		found = schedule(connection, given)
	case "work":
		found = work(connection, given)
	default:
		found = report{Unsupported: "no action " + os.Args[1]}
	}
	found.Version = version()
	if found.Settings == nil {
		found.Settings = map[string]any{}
	}
	if found.Delays == nil {
		found.Delays = []float64{}
	}
	found.Settings["go"] = runtime.Version()
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fail(err)
	}
}

func enqueue(connection asynq.RedisConnOpt, given parameters) report {
	client := asynq.NewClient(connection)
	defer client.Close()
	payload := []byte("\"" + strings.Repeat("x", given.Payload-2) + "\"")
	var options []asynq.Option
	if given.Delay > 0 {
		options = append(options, asynq.ProcessIn(time.Duration(given.Delay*float64(time.Second))))
	}
	callers := 1
	if given.Mode == "concurrent" {
		callers = given.Callers
	}
	var left atomic.Int64
	left.Store(int64(given.Jobs))
	var group sync.WaitGroup
	begun, cpuBegun := time.Now(), cpu()
	if given.Mode == "drip" {
		for left.Add(-1) >= 0 {
			time.Sleep(time.Duration(given.Pause * (0.5 + rand.Float64()) * float64(time.Second)))
			stamped := []byte(fmt.Sprintf("%c%d", stamp, monotonic()))
			if _, err := client.Enqueue(asynq.NewTask("noop", stamped), options...); err != nil {
				fail(err)
			}
		}
	}
	for range callers {
		group.Add(1)
		go func() {
			defer group.Done()
			for left.Add(-1) >= 0 {
				if _, err := client.Enqueue(asynq.NewTask("noop", payload), options...); err != nil {
					fail(err)
				}
			}
		}()
	}
	group.Wait()
	return report{
		Jobs: given.Jobs, Seconds: time.Since(begun).Seconds(), CPUSeconds: cpu() - cpuBegun,
		Settings: map[string]any{"goroutines": callers},
	}
}

// schedule enqueues tasks that become due one by one, from After to After + Span seconds from now.
func schedule(connection asynq.RedisConnOpt, given parameters) report {
	client := asynq.NewClient(connection)
	defer client.Close()
	now := time.Now()
	boot := now.UnixNano() - monotonic()
	first := now.Truncate(time.Millisecond).Add(time.Duration(given.After * float64(time.Second)))
	step := time.Duration(given.Span*float64(time.Second)) / time.Duration(given.Jobs)
	var next atomic.Int64
	var group sync.WaitGroup
	for range fillCallers {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				number := next.Add(1) - 1
				if number >= int64(given.Jobs) {
					return
				}
				due := first.Add(time.Duration(number) * step).Truncate(time.Millisecond)
				stamped := []byte(fmt.Sprintf("%c%d", stamp, due.UnixNano()-boot))
				if _, err := client.Enqueue(asynq.NewTask("noop", stamped), asynq.ProcessAt(due)); err != nil {
					fail(err)
				}
			}
		}()
	}
	group.Wait()
	if !time.Now().Before(first) {
		fail(fmt.Errorf("the first of %d jobs was due before the last was enqueued", given.Jobs))
	}
	return report{Jobs: given.Jobs}
}

func work(connection asynq.RedisConnOpt, given parameters) report {
	var count atomic.Int64
	var begun time.Time
	var cpuBegun float64
	var lock sync.Mutex
	delays := []float64{}
	done := make(chan struct{})
	server := asynq.NewServer(connection, asynq.Config{
		Concurrency: given.Concurrency, LogLevel: asynq.ErrorLevel,
		TaskCheckInterval: taskCheck, DelayedTaskCheckInterval: delayedCheck,
	})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if text := task.Payload(); text[0] == stamp {
			enqueued, err := strconv.ParseInt(string(text[1:]), 10, 64)
			if err != nil {
				return err
			}
			delay := float64(monotonic()-enqueued) / 1e6
			lock.Lock()
			delays = append(delays, delay)
			lock.Unlock()
		}
		switch number := count.Add(1); {
		case number == 1:
			begun, cpuBegun = time.Now(), cpu()
			if given.Announce {
				fmt.Println("ready")
			}
			if given.Jobs == 1 {
				close(done)
			}
		case number == int64(given.Jobs):
			close(done)
		}
		return nil
	}))
	if err != nil {
		fail(err)
	}
	<-done
	inspector := asynq.NewInspector(connection)
	for !given.Leave {
		info, err := inspector.GetQueueInfo("default")
		if err != nil {
			fail(err)
		}
		if info.Size == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	found := report{
		Jobs: given.Jobs, Seconds: time.Since(begun).Seconds(), CPUSeconds: cpu() - cpuBegun,
		Delays: delays,
		Settings: map[string]any{
			"concurrency": given.Concurrency, "retention": "none",
			"TaskCheckInterval": taskCheck.String(), "DelayedTaskCheckInterval": delayedCheck.String(),
		},
	}
	server.Shutdown()
	return found
}

func cpu() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		fail(err)
	}
	return now.Nano()
}

func version() string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range build.Deps {
			if dependency.Path == "github.com/hibiken/asynq" {
				return strings.TrimPrefix(dependency.Version, "v")
			}
		}
	}
	return "unknown"
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
