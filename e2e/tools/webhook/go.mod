// A webhook for pods of tests. Build: ../webhook.sh
module local/webhook

go 1.26.0
