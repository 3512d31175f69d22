// Command webhook refuses whatever an API server asks it about. Its argument is a file with its key and certificate.
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"
)

type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID  string `json:"uid"`
	Name string `json:"name"`
}

type response struct {
	UID     string `json:"uid"`
	Allowed bool   `json:"allowed"`
	Status  status `json:"status"`
}

type status struct {
	Message string `json:"message"`
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: webhook FILE")
	}
	http.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("POST /refuse", refuse)
	log.Fatal(http.ListenAndServeTLS(":8443", os.Args[1], os.Args[1], nil))
}

func refuse(out http.ResponseWriter, in *http.Request) {
	var asked review
	if err := json.NewDecoder(in.Body).Decode(&asked); err != nil || asked.Request == nil {
		http.Error(out, "not an admission review", http.StatusBadRequest)
		return
	}
	answer := review{APIVersion: asked.APIVersion, Kind: asked.Kind, Response: &response{
		UID:    asked.Request.UID,
		Status: status{Message: "the webhook does not want " + asked.Request.Name},
	}}
	out.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(out).Encode(answer); err != nil {
		log.Print(err)
	}
}
