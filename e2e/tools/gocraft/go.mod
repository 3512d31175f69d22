// Pins the work queue that our own must get along with. Build: ../gocraft.sh
module local/gocraft

go 1.26.0

require (
	github.com/gocraft/work v0.5.1
	github.com/gomodule/redigo v1.8.9
)

require github.com/robfig/cron v1.2.0 // indirect
