// Command gocraft is a producer, a pool and a client of the work queue github.com/gocraft/work, for tests of programs
// that speak its protocol.
//
//	gocraft -redis redis://:password@host:port/0 -namespace ns COMMAND
//
//	enqueue NAME             a job for each JSON object that is read
//	enqueue-unique NAME      the same, if there is no equal job
//	schedule NAME SECONDS    the same, to be done later
//	work [flags] NAME [TO]   a pool, until there is no more to read; each job is answered by a job TO with its arguments
//	inspect                  what the web UI shows, as JSON
//	retry-dead               what its button does
//
// Identifiers of jobs are printed as they are enqueued or done.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/gocraft/work"
	"github.com/gomodule/redigo/redis"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gocraft:", err)
		os.Exit(1)
	}
}

func run() error {
	url := flag.String("redis", "", "where Redis is")
	namespace := flag.String("namespace", "work", "what keys begin with")
	flag.Parse()
	pool := &redis.Pool{
		MaxActive: 16,
		MaxIdle:   16,
		Wait:      true,
		Dial:      func() (redis.Conn, error) { return redis.DialURL(*url, redis.DialConnectTimeout(5*time.Second)) },
	}
	args := flag.Args()
	if len(args) == 0 {
		return errors.New("no command")
	}
	switch args[0] {
	case "enqueue", "enqueue-unique", "schedule":
		return enqueue(work.NewEnqueuer(*namespace, pool), args)
	case "work":
		return serve(pool, *namespace, args[1:])
	case "inspect":
		return inspect(work.NewClient(*namespace, pool))
	case "retry-dead":
		return work.NewClient(*namespace, pool).RetryAllDeadJobs()
	}
	return fmt.Errorf("no such command: %s", args[0])
}

func enqueue(enqueuer *work.Enqueuer, args []string) error {
	if len(args) < 2 {
		return errors.New("enqueue what?")
	}
	lines := json.NewDecoder(bufio.NewReader(os.Stdin))
	lines.UseNumber()
	for {
		var jobArgs map[string]interface{}
		if err := lines.Decode(&jobArgs); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		job, err := enqueueOne(enqueuer, args, jobArgs)
		if err != nil {
			return err
		}
		if job != nil {
			fmt.Println(job.ID)
		}
	}
}

func enqueueOne(enqueuer *work.Enqueuer, args []string, jobArgs map[string]interface{}) (*work.Job, error) {
	switch args[0] {
	case "enqueue-unique":
		return enqueuer.EnqueueUnique(args[1], jobArgs)
	case "schedule":
		seconds, err := strconv.ParseInt(args[2], 10, 64)
		if err != nil {
			return nil, err
		}
		scheduled, err := enqueuer.EnqueueIn(args[1], seconds, jobArgs)
		if err != nil {
			return nil, err
		}
		return scheduled.Job, nil
	default:
		return enqueuer.Enqueue(args[1], jobArgs)
	}
}

// nothing is the context of each job.
type nothing struct{}

func serve(pool *redis.Pool, namespace string, args []string) error {
	flags := flag.NewFlagSet("work", flag.ContinueOnError)
	concurrency := flags.Uint("concurrency", 1, "workers")
	fails := flags.Int64("fails", 0, "so often each job fails first")
	limit := flags.Uint("cap", 0, "so many are in flight at once")
	maxFails := flags.Uint("max-fails", 4, "so often a job may fail")
	soon := flags.Bool("soon", false, "retry at once instead of after a while")
	hold := flags.Bool("hold", false, "never end a job")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("work on what?")
	}
	enqueuer := work.NewEnqueuer(namespace, pool)
	answer := func(job *work.Job) error {
		if job.Fails < *fails {
			return fmt.Errorf("failure %d of %d", job.Fails+1, *fails)
		}
		fmt.Println(job.ID)
		if *hold {
			select {}
		}
		if flags.NArg() < 2 {
			return nil
		}
		_, err := enqueuer.Enqueue(flags.Arg(1), job.Args)
		return err
	}
	options := work.JobOptions{MaxFails: *maxFails, MaxConcurrency: *limit}
	if *soon {
		options.Backoff = func(*work.Job) int64 { return 0 }
	}
	workers := work.NewWorkerPool(nothing{}, *concurrency, namespace, pool)
	workers.JobWithOptions(flags.Arg(0), options, answer)
	workers.Start()
	defer workers.Stop()
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// page is one of the lists of the web UI.
type page struct {
	Count int64       `json:"count"`
	Jobs  interface{} `json:"jobs"`
}

func inspect(client *work.Client) error {
	shown := map[string]interface{}{}
	var err error
	if shown["queues"], err = client.Queues(); err != nil {
		return err
	}
	if shown["worker_pools"], err = client.WorkerPoolHeartbeats(); err != nil {
		return err
	}
	if shown["workers"], err = client.WorkerObservations(); err != nil {
		return err
	}
	retry, count, err := client.RetryJobs(1)
	if err != nil {
		return err
	}
	shown["retry_jobs"] = page{count, retry}
	scheduled, count, err := client.ScheduledJobs(1)
	if err != nil {
		return err
	}
	shown["scheduled_jobs"] = page{count, scheduled}
	dead, count, err := client.DeadJobs(1)
	if err != nil {
		return err
	}
	shown["dead_jobs"] = page{count, dead}
	return json.NewEncoder(os.Stdout).Encode(shown)
}
