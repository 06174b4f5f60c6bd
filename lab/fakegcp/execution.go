package fakegcp

import (
	"fmt"
	"strings"
)

// An Execution is one run of a Cloud Run job.
type Execution struct {
	// Job and Name are full names.
	Job, Name string
	Container Container
}

var execution = &resourceKind{collection: "projects/*/locations/*/jobs/*/executions", listed: "executions", operation: longRunning}

// runIfAsked runs a job if the job was created or changed with a new token. The change ends when
// the execution ends, and fails if the execution fails. An execution is named after its token, so
// an old token starts no execution.
// https://cloud.google.com/run/docs/reference/rest/v2/projects.locations.jobs#Job
func (s *Server) runIfAsked(c *call, job *resource, old fields) error {
	token := text(job.body["runExecutionToken"])
	if token == "" || token == text(old["runExecutionToken"]) || s.executed(job, token) {
		return nil
	}
	_, err := s.execute(c, job, token)
	return err
}

func (s *Server) executed(job *resource, token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resources[key(runAPI, executionName(job, token))] != nil
}

func executionName(job *resource, id string) string {
	return job.name + "/executions/" + job.id() + "-" + id
}

func (s *Server) runNow(c *call) (fields, error) {
	job, err := s.get(c)
	if err != nil {
		return nil, err
	}
	// The job keeps only the token of its latest execution. This execution has no token.
	// https://github.com/GoogleCloudPlatform/magic-modules/pull/19060
	delete(job.body, "runExecutionToken")
	id := "run" + s.next()
	s.mu.Unlock()
	defer s.mu.Lock()
	made, err := s.execute(c, job, id)
	return longRunning(made, err), nil
}

// execute runs a job once. It does not hold the lock while the job runs, because the job may call
// the server.
func (s *Server) execute(c *call, job *resource, id string) (*resource, error) {
	e := Execution{Job: job.name, Name: executionName(job, id)}
	var failed error
	if e.Container, failed = s.Container(job.name); failed == nil && s.options.Execute != nil {
		failed = s.options.Execute(c.ctx, e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	made := &resource{api: runAPI, name: e.Name, body: fields{
		"name": e.Name, "job": job.name, "createTime": created, "completionTime": created, "succeededCount": 1,
	}}
	status := "EXECUTION_SUCCEEDED"
	if failed != nil {
		status = "EXECUTION_FAILED"
		delete(made.body, "succeededCount")
		made.body["failedCount"] = 1
		failed = fmt.Errorf("execution %s failed: %s", lastPart(e.Name), strings.TrimSpace(failed.Error()))
	}
	s.resources[key(runAPI, e.Name)] = made
	job.body["executionCount"] = number(job.body["executionCount"]) + 1
	job.body["latestCreatedExecution"] = fields{"name": lastPart(e.Name), "createTime": created, "completionStatus": status}
	return made, failed
}
