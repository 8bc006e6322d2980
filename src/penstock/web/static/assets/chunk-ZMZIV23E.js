var z={zh:"zh-d80b3982b6.json"};export{z as a};
