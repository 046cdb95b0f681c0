from twisted.application.service import ServiceMaker

msgnode = ServiceMaker(
    "msgnode",
    "msgnode.tap",
    "A domain messaging node: WebSocket, TCP lines and long-polling, one router.",
    "msgnode",
)
