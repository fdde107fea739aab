# Judges outputs by a task's own checker: check(input, expected, output). What that prints goes nowhere.
def judge():
    encode, decode, receive, send, Refused = wire()
    space = {"__name__": "checker"}
    try:
        exec(compile(receive()["source"], "<checker>", "exec"), space)
        check = space["check"]
        if not callable(check):
            raise TypeError("check")
    except BaseException as e:
        send({"fault": type(e).__name__})
        return
    send({"fault": ""})
    while True:
        job = receive()
        try:
            said = check(job["input"], job["expected"], job["output"])
            if type(said) is not bool:
                raise TypeError("check returns True or False")
            send({"passed": said, "raised": ""})
        except BaseException as e:
            send({"passed": False, "raised": type(e).__name__})


judge()
